"""Published cases against predictions: errors, signs, bounds."""

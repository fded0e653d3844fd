"""Interactive charts as Vega-Lite, through Altair: from results to pictures, without arithmetic."""

"""From a scenario to answers: the only layer that turns records into the arguments of physics."""

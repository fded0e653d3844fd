"""Find and load: hardware, models, drafters, acceptance, engines, scenarios, cases, commands."""

"""Why a job is as fast as it is: windows over counters, formulas, rules, sentences."""

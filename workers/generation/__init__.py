"""Text generation by iteration-level batching: texts join and leave between steps (Orca, OSDI 2022, section 3.1)."""

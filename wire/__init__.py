"""Contracts between Shoal's processes: structs, subjects, error codes, local frames. No I/O and no imports of ours."""

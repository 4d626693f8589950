"""Pure policies of batch formation: what a batch costs, which rows run next, how rows are split into passes."""

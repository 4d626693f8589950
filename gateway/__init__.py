"""The inference API: authenticate, annotate, publish to the queue, await the reply. No model code, no database."""

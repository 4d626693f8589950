"""Answers as JSON: OpenAI's shapes, and those of the usual rerank and classification services."""

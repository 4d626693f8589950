"""The device process: one worker owns one device, holds base models and adapters, and forms its own
batches.
"""

"""Slot-based packed LoRA: any mix of adapters and base rows in one forward pass."""

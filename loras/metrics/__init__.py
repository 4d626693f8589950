"""What requests say of versions: figures from the gateways' usage, and the judgement of canaries."""

"""From one-second samples on NATS to history, roll-ups and one coalesced message a second."""

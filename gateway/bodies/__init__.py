"""Request bodies: each decoded into a typed struct, then refused or accepted. Pure."""

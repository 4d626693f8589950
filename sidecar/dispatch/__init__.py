"""Who runs what: the desk that owns every held job."""

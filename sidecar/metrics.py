"""Every Prometheus metric of the sidecar."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

JOBS_RECEIVED = Counter("shoal_sidecar_jobs_received", "Jobs delivered by the queue.", ["model"])
JOBS_ANSWERED = Counter("shoal_sidecar_jobs_answered", "Jobs answered, by error code or ok.", ["code"])
JOBS_REQUEUED = Counter("shoal_sidecar_jobs_requeued", "Jobs put back into the local queue.", ["reason"])
JOBS_STOLEN = Counter("shoal_sidecar_jobs_stolen", "Unbegun jobs that went from a busy to an idle worker.")
DIGESTS_REFUSED = Counter(
    "shoal_sidecar_digests_refused", "Versions refused for a while since their jobs kill workers."
)
JOBS_DEAD = Counter("shoal_sidecar_jobs_dead", "Jobs kept in the DEAD stream.", ["reason"])
JOBS_RETURNED = Counter("shoal_sidecar_jobs_returned", "Jobs handed back for other machines to run.", ["reason"])
DUPLICATES = Counter("shoal_sidecar_duplicate_deliveries", "Deliveries of jobs already held or answered here.")
HELD_JOBS = Gauge("shoal_sidecar_held_jobs", "Jobs delivered and not settled yet.")
QUEUED_JOBS = Gauge("shoal_sidecar_queued_jobs", "Jobs waiting in the local queue, parked ones included.")
LOCAL_WAIT = Histogram(
    "shoal_sidecar_local_wait_seconds",
    "Delivery to hand-over to a worker.",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
PULLS_OPENED = Counter("shoal_sidecar_pulls_opened", "Pull requests sent.")
PULLS_RENEWED = Counter("shoal_sidecar_pulls_renewed", "Inboxes replaced because deliveries stopped.", ["reason"])
WORKERS = Gauge("shoal_sidecar_workers", "Workers connected.")
WORKERS_LOST = Counter("shoal_sidecar_workers_lost", "Worker connections that ended.", ["reason"])
WORKERS_KILLED = Counter("shoal_sidecar_workers_killed", "Workers killed by the watchdog.")
DOWNLOADS = Counter("shoal_sidecar_artifact_downloads", "Artifact downloads, by outcome.", ["outcome"])
CACHE_BYTES = Gauge("shoal_sidecar_cache_bytes", "Bytes of artifacts on disk.")
CACHE_EVICTIONS = Counter("shoal_sidecar_cache_evictions", "Artifacts removed to make room.")

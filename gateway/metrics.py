"""Every metric of the gateway; labels take values from fixed sets only."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Metrics of one gateway in a registry of its own. ``code`` is ``ok`` or a code of ``wire.errors``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "shoal_gateway_requests", "Answered requests", ["endpoint", "code"], registry=self.registry
        )
        self.seconds = self._histogram("shoal_gateway_request_seconds", "Time from request to answer")
        self.queue_seconds = self._histogram("shoal_gateway_queue_seconds", "Time jobs waited for their batch")
        self.inputs = self._counter("shoal_gateway_inputs", "Inputs of answered requests")
        self.tokens = self._counter("shoal_gateway_tokens", "Tokens of answered requests")
        self.published = self._counter("shoal_gateway_published_jobs", "Jobs accepted by the queue")
        self.republished = self._counter("shoal_gateway_republished_jobs", "Jobs published again after a loss")
        self.cancelled = self._counter("shoal_gateway_cancelled_jobs", "Jobs nobody waited for any more")
        self.late_replies = self._counter("shoal_gateway_late_replies", "Replies that came second or too late")
        self.mismatches = self._counter(
            "shoal_gateway_digest_mismatches", "Replies made with another version than the one asked for"
        )
        self.in_flight = self._gauge("shoal_gateway_in_flight_requests", "Requests being served")
        self.connected = self._gauge("shoal_gateway_nats_connected", "1 while connected to NATS")
        self.queue_messages = self._gauge("shoal_queue_messages", "Jobs in the work queue")
        self.queue_bytes = self._gauge("shoal_queue_bytes", "Bytes in the work queue")
        self.mirror_records = Gauge(
            "shoal_gateway_mirror_records",
            "Records known from a bucket",
            ["bucket"],
            registry=self.registry,
        )

    def render(self) -> bytes:
        """The exposition text that Prometheus scrapes."""
        return bytes(generate_latest(self.registry))

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, registry=self.registry, buckets=_SECONDS)

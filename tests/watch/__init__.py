"""Prometheus and Grafana beside running brokers."""

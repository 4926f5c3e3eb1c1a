"""Images, compose files, and what Prometheus and Grafana are told; `dashboards.py` writes Grafana's dashboards."""

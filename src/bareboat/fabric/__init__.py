"""Fast networks: the transport that the ranks used (`transport_logs`). Pure; `bareboat.probe.fabrics` probes
the node, and `bareboat.plan.fabric` chooses settings."""

"""Fast networks: a node's facts (facts), the settings that follow from them with reasons (settings), and the
transport that the ranks used (`transport_logs`). All of it is pure; `bareboat.probe.fabrics` probes the
node."""

"""Fast networks: what a node has of them (facts), what is set because of that and why (settings), and which
way the ranks really took (told, taken). All of it is pure; the node is looked at by
`bareboat.probe.fabrics`."""

"""The demo: 100 made-up stores."""

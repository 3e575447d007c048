"""Programs that are measured as processes of their own: yardsticks, and what stands beside them."""

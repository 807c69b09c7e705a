"""From a logical plan to sub-topologies with pinned names. Entry point: `flowql.compiler.physical.planner.plan_query`."""

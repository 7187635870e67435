"""Program → plan."""
from ngraph.plan.interpret import interpret
from ngraph.plan.planner import plan

"""Views of standard SQL over relations that change: a query's tree as a plan of operators over changes (`flowql.compiler.plan.changes`)."""

"""What a precision matrix says about its graph: influence, spectrum, correlation, convergence."""

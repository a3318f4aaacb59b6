"""The checks of `jmsx check`: of a broker, of options, and of an application's consumers."""

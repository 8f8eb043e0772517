"""The paper's theory, executable: numpy float64, no learning."""

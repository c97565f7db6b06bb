"""What happens between pytest's hooks and the evaluator."""

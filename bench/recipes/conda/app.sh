greet

print("3 migrations")

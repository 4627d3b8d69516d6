from pamc.data.database import connected


def test_a_connection_draws_nothing_and_compares_no_expressions():
    with connected() as connection:
        settings = connection.execute(
            "SELECT current_setting('enable_progress_bar'), current_setting('disabled_optimizers')"
        ).fetchone()
    assert settings == (False, "common_subexpressions")

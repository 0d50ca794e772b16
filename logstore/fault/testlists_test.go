package fault_test

import "testing"

// TestListedFailuresAreRecognised checks that failures listed by Gradle, RSpec and PHPUnit are
// recognised, and that similar lines are not.
func TestListedFailuresAreRecognised(t *testing.T) {
	for _, m := range []misreadCase{
		{"gradle", []string{
			"0> Task :test FAILED", "0", "0AppTest > adds() FAILED", "0    org.opentest4j.AssertionFailedError at AppTest.java:12", "0", "0AppTest > wraps() FAILED", "0    java.lang.RuntimeException at AppTest.java:17",
			"0        Caused by: java.io.IOException at AppTest.java:16", "0", "02 tests completed, 2 failed", "0", "0FAILURE: Build failed with an exception.", "0", "0* What went wrong:", "0Execution failed for task ':test'.",
		}, []string{
			"org.opentest4j.AssertionFailedError|AppTest > adds()|AppTest.java:12|1", "java.lang.RuntimeException|AppTest > wraps()|AppTest.java:17|2",
		}},
		{"gradle in full", []string{
			"0AppTest > adds() FAILED", "5    org.opentest4j.AssertionFailedError: expected: <3> but was: <4>", "0        at com.example.AppTest.adds(AppTest.java:12)",
		}, []string{"org.opentest4j.AssertionFailedError|expected: <3> but was: <4>|AppTest.java:12|1"}},
		{"no test of gradle", []string{"0a > b FAILED", "0    SomeError at lunch", "0a > b FAILED", "0done at x.java:3", "0 > b FAILED", "0    SomeError at x.java:3"}, nil},
		{"a level", []string{"5ERROR: a > b FAILED", "0    SomeError at x.java:3"}, []string{"|a > b FAILED|:0|0"}},
		{"rspec", []string{
			"0Failures:", "0", "0  1) Calculator adds", "0     Failure/Error: expect(sum).to eq(3)", "0", "0       expected: 3", "0            got: 4", "0", "0       (compared using ==)",
			"0     # ./spec/calc_spec.rb:5:in `block (2 levels) in <top (required)>'", "0", "0  2) Calculator breaks", `0     Failure/Error:`, "0       raise ArgumentError,", `0         "boom"`, "0", "5     ArgumentError:", "0       boom",
			"0     # /usr/lib/ruby/x.rb:3:in `y'", "0     # ./lib/calc.rb:3:in `breaks'", "0     # ./spec/calc_spec.rb:9:in `block (2 levels) in <top (required)>'", "0",
			"0Finished in 0.01 seconds (files took 0.1 seconds to load)", "02 examples, 2 failures", "0", "5Failed examples:", "0", "0rspec ./spec/calc_spec.rb:4 # Calculator adds",
		}, []string{"FAIL|Calculator adds: expected: 3\ngot: 4|./spec/calc_spec.rb:5|5", "ArgumentError|Calculator breaks: boom|./lib/calc.rb:3|8"}},
		{"phpunit", []string{
			"0PHPUnit 10.5.0 by Sebastian Bergmann and contributors.", "0", "0FE                                                                  2 / 2 (100%)", "0",
			"0There was 1 error:", "0", "01) CalcTest::testBreaks", "5RuntimeException: boom", "0", "0/app/src/Calc.php:7", "0/app/tests/CalcTest.php:19", "0", "0--", "0", "0There were 2 failures:", "0",
			"01) CalcTest::testAdds with data set #0 (1, 2)", "0Failed asserting that 4 matches expected 3.", "0", "0/app/vendor/x/Assert.php:3", "0/app/tests/CalcTest.php:12", "0", "02) CalcTest::testSum", "0no sum", "0",
			"0/app/tests/CalcTest.php:30", "0", "0FAILURES!", "0Tests: 3, Assertions: 2, Errors: 1, Failures: 2.", "01) See::this", "0of no test",
		}, []string{
			"RuntimeException|CalcTest::testBreaks: boom|/app/src/Calc.php:7|4", "FAIL|CalcTest::testAdds with data set #0 (1, 2): Failed asserting that 4 matches expected 3.|/app/tests/CalcTest.php:12|4",
			"FAIL|CalcTest::testSum: no sum|/app/tests/CalcTest.php:30|3",
		}},
		{"no test of phpunit", []string{"01) See::this", "0of no test", "0There was 1 failure: none", "01) See::this", "0There were 2 errors:", "0", "01) the first was at std::move", "02) the second"}, nil},
		{"no test of rspec", []string{"0     Failure/Error: rate", "0  of 3", "01) Calculator adds", "0     Failure/Error: rate"}, nil},
	} {
		m.run(t)
	}
}

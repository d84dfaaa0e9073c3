// Commands as words, and where their programs are.
#include "keeper/command_line.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace cenote {

BOOST_AUTO_TEST_SUITE(command_lines)

BOOST_AUTO_TEST_CASE(a_command_is_words_between_blanks) {
  BOOST_TEST((command_words(" a  b\tc=\"d e\" ") == std::vector<std::string>{"a", "b", "c=\"d", "e\""}));
  BOOST_TEST(command_words(" \t").empty());
}

BOOST_AUTO_TEST_CASE(a_program_is_a_file_that_can_be_executed) {
  BOOST_TEST(program_path("/bin/sh") == "/bin/sh");
  BOOST_TEST(program_path("sh").ends_with("/sh"));
  for (const char* name : {"", "/bin", "/etc/passwd", "/nowhere/sh", "no-such-program-of-cenote"}) {
    BOOST_TEST(program_path(name) == "", name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote

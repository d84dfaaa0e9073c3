// Lists of addresses, and files with passwords.
#include "transport/manager/client/client_options.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace cenote::manager {

namespace {

class password_place {
 public:
  password_place() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cenote-client-XXXXXX").native();
    folder_ = ::mkdtemp(pattern.data());
  }
  password_place(const password_place&) = delete;
  password_place& operator=(const password_place&) = delete;
  ~password_place() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& text, mode_t mode = S_IRUSR | S_IWUSR) const {
    const std::string path = (folder_ / "password").native();
    std::ofstream(path) << text;
    BOOST_TEST_REQUIRE(::chmod(path.c_str(), mode) == 0);
    return path;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(client_options_values)

BOOST_AUTO_TEST_CASE(a_list_of_addresses_is_read_in_its_order) {
  const auto addresses = parse_addresses("10.0.0.7:6491, m2:1,[::1]:6491");
  BOOST_TEST_REQUIRE(addresses.has_value());
  BOOST_TEST_REQUIRE(addresses->size() == 3);
  BOOST_TEST(addresses->at(0).text() == "10.0.0.7:6491");
  BOOST_TEST(addresses->at(1).text() == "m2:1");
  BOOST_TEST(addresses->at(2).text() == "[::1]:6491");
}

BOOST_AUTO_TEST_CASE(a_list_with_a_part_that_is_no_address_is_refused) {
  for (const char* text : {"", ",", "m1", "m1:0", "m1:1,", ",m1:1", "m1:1,,m2:1", "m1:70000"}) {
    BOOST_TEST(!parse_addresses(text).has_value(), text);
  }
}

BOOST_AUTO_TEST_CASE(a_password_is_the_first_line_of_a_private_file) {
  const password_place place;
  for (const char* text : {"secret", "secret\n", "secret\r\nmore\n"}) {
    const auto password = read_password(place.file(text));
    BOOST_TEST_REQUIRE(password.has_value());
    BOOST_TEST(*password == "secret");
  }
}

BOOST_AUTO_TEST_CASE(a_password_that_is_empty_or_that_others_may_read_is_refused) {
  const password_place place;
  BOOST_TEST(!read_password(place.file("")).has_value());
  BOOST_TEST(!read_password(place.file("\nsecret\n")).has_value());
  BOOST_TEST(!read_password(place.file("secret", S_IRUSR | S_IRGRP)).has_value());
  BOOST_TEST(!read_password("/absent/password").has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

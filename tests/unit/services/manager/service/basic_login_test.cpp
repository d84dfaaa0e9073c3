// Basic authorization, good and bad.
#include "services/manager/service/basic_login.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/services/manager/service/account_world.hpp"

namespace cenote::manager {

BOOST_AUTO_TEST_SUITE(basic_logins)

BOOST_AUTO_TEST_CASE(a_name_ends_at_the_first_colon) {
  const auto login = read_basic_login("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");  // of RFC 7617
  BOOST_TEST_REQUIRE(login.has_value());
  BOOST_TEST(login->name == "Aladdin");
  BOOST_TEST(login->password == "open sesame");
  const auto colons = read_basic_login(test::authorization_of("a:b:c"));
  BOOST_TEST_REQUIRE(colons.has_value());
  BOOST_TEST(colons->name == "a");
  BOOST_TEST(colons->password == "b:c");
}

BOOST_AUTO_TEST_CASE(a_login_is_read_with_every_padding) {
  for (const std::string password : {"", "1", "12", "123", "1234"}) {
    const auto login = read_basic_login(test::authorization_of("u:" + password));
    BOOST_TEST_REQUIRE(login.has_value(), password);
    BOOST_TEST(login->password == password);
  }
}

BOOST_AUTO_TEST_CASE(the_scheme_is_read_in_any_case) {
  BOOST_TEST(read_basic_login("bAsIc   QWxhZGRpbjpvcGVuIHNlc2FtZQ== ").has_value());
}

BOOST_AUTO_TEST_CASE(what_is_no_login_is_refused) {
  for (const std::string text :
       {"", "Basic", "Basic ", "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=",
        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ", "Basic QWxh=GRpbjpvcGVuIHNlc2FtZQ==", "Basic ====", "Basic =",
        "Basic QWxhZGRpbjpvcGVu\nIHNlc2FtZQ==", "Basic YWJj", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}) {
    BOOST_TEST(!read_basic_login(text).has_value(), text);
  }
  BOOST_TEST(!read_basic_login(test::authorization_of("u:" + std::string(5'000, 'x'))).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

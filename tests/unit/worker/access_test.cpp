#include "worker/access.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>

using namespace cenote;

namespace {

constexpr gid_t some_group = 70'001;

/// Neither root nor the user of this test, who may always attach.
uid_t a_stranger() {
  return ::geteuid() + 70'000;
}

connection from(uid_t uid, gid_t gid = 70'000) {
  return {.socket = {}, .peer = {.pid = 1, .uid = uid, .gid = gid}, .out = local::outbox(-1)};
}

local::attach_request naming(const std::string& group, const std::string& token = {}) {
  local::attach_request request;
  request.spec.instance_group = group;
  request.token = token;
  return request;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(who_may)

BOOST_AUTO_TEST_CASE(without_lists_only_the_daemons_user_and_root_may_attach) {
  const config::node_config config;
  BOOST_TEST(may_attach(from(::geteuid()), config));
  BOOST_TEST(may_attach(from(0), config));
  BOOST_TEST(!may_attach(from(a_stranger()), config));
}

BOOST_AUTO_TEST_CASE(a_listed_user_or_group_may_attach_and_no_other) {
  config::node_config config;
  config.auth.allow_uids = {a_stranger()};
  config.auth.allow_gids = {some_group};
  BOOST_TEST(may_attach(from(a_stranger()), config));
  BOOST_TEST(may_attach(from(a_stranger() + 1, some_group), config));
  BOOST_TEST(!may_attach(from(a_stranger() + 1), config));
}

BOOST_AUTO_TEST_CASE(to_attach_does_not_mean_to_administrate) {
  config::node_config config;
  config.auth.allow_uids = {a_stranger()};
  BOOST_TEST(!may_administrate(from(a_stranger(), some_group), config));
  config.auth.admin_gid = some_group;
  BOOST_TEST(may_administrate(from(a_stranger(), some_group), config));
  BOOST_TEST(!may_administrate(from(a_stranger()), config));
}

BOOST_AUTO_TEST_CASE(a_group_with_users_or_a_token_is_for_those_who_are_listed_and_have_it) {
  config::node_config config;
  config.groups["paid"].uids = {a_stranger()};
  config.groups["secret"].token = "right";
  const connection client = from(a_stranger());
  BOOST_TEST(check_group(client, naming("paid"), config).has_value());
  BOOST_TEST(!check_group(from(a_stranger() + 1), naming("paid"), config).has_value());
  BOOST_TEST(check_group(client, naming("secret", "right"), config).has_value());
  for (const char* wrong : {"", "righ", "rights", "Right"}) {
    BOOST_TEST(!check_group(client, naming("secret", wrong), config).has_value());
  }
  BOOST_TEST(check_group(client, naming("of nobody"), config).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

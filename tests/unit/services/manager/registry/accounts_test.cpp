// Accounts: roles, groups, passwords, and the last one that is admin.
#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/unit/services/manager/registry/registry_world.hpp"

namespace cenote::manager {

using enum answer_code;

namespace {

proto::admin::AddAccountRequest account(std::string_view json) {
  return test::message_of<proto::admin::AddAccountRequest>(json);
}

// Costs of nearly nothing, for tests that are about something else.
account_secret cheap_secret() {
  return {.n = 2};
}

test::registry_world admin_world() {
  test::registry_world world;
  const auto request = account(R"({"user_name":"root","password":"p","role":"ROLE_ADMIN"})");
  BOOST_TEST_REQUIRE(world.apply(world.value.add_account(request, cheap_secret())) == ok);
  return world;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(accounts)

BOOST_AUTO_TEST_CASE(a_password_matches_its_own_hash_alone) {
  const auto secret = make_secret("correct horse");
  BOOST_REQUIRE(secret.has_value());
  BOOST_TEST((secret->n == 16384U && secret->r == 8U && secret->p == 1U));
  BOOST_TEST(matches(*secret, "correct horse"));
  BOOST_TEST(!matches(*secret, "correct horsE"));
  BOOST_TEST(!matches(*secret, ""));
  BOOST_TEST((make_secret("correct horse")->salt != secret->salt));
}

BOOST_AUTO_TEST_CASE(costs_far_above_those_of_new_secrets_are_refused) {
  const account_secret secret = *make_secret("password");
  for (const std::uint64_t n : {0ULL, 1ULL, 3ULL, 1ULL << 18U, ~0ULL}) {
    account_secret dear = secret;
    dear.n = n;
    BOOST_TEST(!is_bearable(dear), n);
    BOOST_TEST(!matches(dear, "password"), n);
  }
  BOOST_TEST(!is_bearable({.r = 9}));
  BOOST_TEST(!is_bearable({.p = 2}));
  BOOST_TEST(is_bearable({.n = 1ULL << 17U}));
}

BOOST_AUTO_TEST_CASE(passwords_are_neither_empty_nor_endless) {
  BOOST_TEST(make_secret("").error().code == invalid_argument);
  BOOST_TEST(make_secret(std::string(1025, 'x')).error().code == invalid_argument);
}

BOOST_AUTO_TEST_CASE(an_account_has_role_and_groups) {
  auto world = admin_world();
  BOOST_TEST(world.apply(world.value.add_account(account(R"({"user_name":"u","password":"p","groups":["b","a","b"]})"),
                                                 cheap_secret())) == ok);
  const auto entry = world.value.find_account("u");
  BOOST_TEST((entry->role == account_role::user && entry->groups == std::vector<std::string>{"a", "b"}));
  BOOST_TEST((entry->may_see("a") && !entry->may_see("c")));
  BOOST_TEST(world.value.find_account("root")->may_see("c"));
  BOOST_TEST(entry->message().user_name() == "u");
  BOOST_TEST(world.rows.at("a/u").find("\"p\"") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(all_that_can_never_work_is_named_at_once) {
  test::registry_world world;
  BOOST_TEST(world.apply(world.value.add_account(account(R"({"user_name":"a:b","role":7,"groups":[""]})"),
                                                 cheap_secret())) == invalid_argument);
  BOOST_TEST((world.notes("user_name") && world.notes("password") && world.notes("role") && world.notes("groups[0]")),
             world.note);
}

BOOST_AUTO_TEST_CASE(the_same_account_again_is_fine_and_another_one_is_a_duplicate) {
  test::registry_world world;
  const auto request = account(R"({"user_name":"u","password":"secret!"})");
  const auto secret = *world.value.secret_for("u", "secret!");
  BOOST_TEST(world.apply(world.value.add_account(request, secret)) == ok);
  BOOST_TEST(world.apply(world.value.add_account(request, *world.value.secret_for("u", "secret!"))) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.apply(world.value.add_account(account(R"({"user_name":"u","password":"x","role":1})"), secret)) ==
             duplicate_entity);
  BOOST_TEST((world.notes("role") && world.notes("ROLE_USER") && world.notes("ROLE_ADMIN")), world.note);
  BOOST_TEST(world.apply(world.value.add_account(account(R"({"user_name":"u","password":"other"})"),
                                                 *world.value.secret_for("u", "other"))) == duplicate_entity);
  BOOST_TEST((world.notes("password") && !world.notes("secret!")), world.note);
}

BOOST_AUTO_TEST_CASE(an_account_is_compared_without_the_work_of_a_password) {
  test::registry_world world;
  const auto request = account(R"({"user_name":"u","password":"p"})");
  const account_secret secret{.n = 1};  // of a cost that no password is checked with
  BOOST_TEST(world.apply(world.value.add_account(request, secret)) == ok);
  BOOST_TEST(world.apply(world.value.add_account(request, secret)) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.value.secret_for("u", "").error().code == invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_password_is_checked_and_an_unknown_name_has_none) {
  test::registry_world world;
  const auto request = account(R"({"user_name":"u","password":"right"})");
  BOOST_TEST(world.apply(world.value.add_account(request, *make_secret("right"))) == ok);
  BOOST_REQUIRE(world.value.check("u", "right"));
  BOOST_TEST(world.value.check("u", "right")->name == "u");
  BOOST_TEST(!world.value.check("u", "wrong"));
  BOOST_TEST(!world.value.check("v", "right"));
  BOOST_TEST(!world.value.check("v", ""));
}

BOOST_AUTO_TEST_CASE(the_last_admin_stays) {
  auto world = admin_world();
  BOOST_TEST(world.apply(world.value.delete_account("root")) == in_use);
  BOOST_TEST(world.apply(world.value.delete_account("none")) == not_found);
  const auto second = account(R"({"user_name":"second","password":"p","role":"ROLE_ADMIN"})");
  BOOST_TEST(world.apply(world.value.add_account(second, cheap_secret())) == ok);
  BOOST_TEST(world.apply(world.value.delete_account("root")) == ok);
  BOOST_TEST(!world.rows.contains("a/root"));
  BOOST_TEST(world.apply(world.value.delete_account("second")) == in_use);
}

BOOST_AUTO_TEST_CASE(a_changed_account_keeps_its_password) {
  auto world = admin_world();
  const auto secret = world.value.find_account("root")->secret;
  const auto demoted = test::message_of<proto::admin::Account>(R"({"user_name":"root","role":"ROLE_USER"})");
  BOOST_TEST(world.apply(world.value.update_account(demoted)) == in_use);
  const auto bound = test::message_of<proto::admin::Account>(R"({"user_name":"root","role":1,"groups":["g"]})");
  BOOST_TEST(world.apply(world.value.update_account(bound)) == ok);
  BOOST_TEST((world.value.find_account("root")->secret.key == secret.key));
  BOOST_TEST(!world.value.find_account("root")->may_see("h"));
  BOOST_TEST(world.apply(world.value.update_account(test::message_of<proto::admin::Account>(R"({"user_name":"n"})"))) ==
             not_found);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

// Callers that are let in, and their rights.
#include "services/manager/service/access.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/services/manager/service/account_world.hpp"

using namespace std::chrono_literals;

namespace cenote::manager {

namespace {

const auto present = test::start_time;

/// An admin `root`, and `u` of the group `g`.
const manager_registry& accounts_of_test() {
  static const manager_registry registry = test::with_account(
      test::with_account({}, "root", "secret", account_role::admin), "u", "p", account_role::user, "g");
  return registry;
}

struct access_world {
  access_control access{{.need = account_need::all}};

  std::optional<access_outcome<call_access>> look(const call_evidence& evidence, rpc_role role = rpc_role::user) {
    return access.look(evidence, accounts_of_test(), role, present);
  }
  access_outcome<call_access> check(std::string_view login, rpc_role role = rpc_role::user,
                                    std::string_view address = "10.0.0.1") {
    const std::string text = test::authorization_of(login);
    return access.check({.address = address, .authorization = text}, accounts_of_test(), role, present);
  }
};

/// Nothing: it was let in.
std::optional<access_fault> fault_of(const access_outcome<call_access>& outcome) {
  return outcome ? std::nullopt : std::optional(outcome.error().fault);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(access_of_calls)

BOOST_AUTO_TEST_CASE(without_accounts_every_caller_may_do_everything) {
  access_control access({.need = account_need::none});
  const auto outcome = access.look({.address = "10.0.0.1"}, {}, rpc_role::admin, present);
  BOOST_TEST_REQUIRE((outcome && *outcome));
  BOOST_TEST((*outcome)->rights.groups.empty());
  BOOST_TEST((*outcome)->caller == "address 10.0.0.1");
}

BOOST_AUTO_TEST_CASE(a_call_without_an_account_is_refused_unless_it_is_open) {
  access_world world;
  BOOST_TEST_REQUIRE(world.look({}).has_value());
  BOOST_TEST((fault_of(*world.look({})) == access_fault::no_account));
  BOOST_TEST_REQUIRE(world.look({}, rpc_role::open).has_value());
  BOOST_TEST((fault_of(*world.look({}, rpc_role::open)) == std::nullopt));
}

BOOST_AUTO_TEST_CASE(a_right_password_gives_the_groups_of_its_account) {
  access_world world;
  const auto outcome = world.check("u:p");
  BOOST_TEST_REQUIRE(outcome.has_value());
  BOOST_TEST((outcome->rights.groups == std::vector<std::string>{"g"}));
  BOOST_TEST(outcome->rights.may_see("g"));
  BOOST_TEST(!outcome->rights.may_see("h"));
  BOOST_TEST(outcome->caller == "account u");
  BOOST_TEST(world.check("root:secret", rpc_role::admin).has_value());
}

BOOST_AUTO_TEST_CASE(a_password_is_checked_once_and_then_looked_up) {
  access_world world;
  const std::string text = test::authorization_of("u:p");
  BOOST_TEST(!world.look({.authorization = text}).has_value());
  BOOST_TEST(world.check("u:p").has_value());
  BOOST_TEST_REQUIRE(world.look({.authorization = text}).has_value());
  BOOST_TEST((fault_of(*world.look({.authorization = text})) == std::nullopt));
  BOOST_TEST((fault_of(*world.look({.authorization = text}, rpc_role::admin)) == access_fault::no_right));
}

BOOST_AUTO_TEST_CASE(a_wrong_password_and_an_unknown_name_are_refused_alike) {
  access_world world;
  const auto wrong = world.check("u:q");
  const auto unknown = world.check("w:p");
  BOOST_TEST((fault_of(wrong) == access_fault::no_account));
  BOOST_TEST((fault_of(unknown) == access_fault::no_account));
  BOOST_TEST(wrong.error().message == unknown.error().message);
}

BOOST_AUTO_TEST_CASE(a_user_is_no_admin) {
  access_world world;
  BOOST_TEST((fault_of(world.check("u:p", rpc_role::admin)) == access_fault::no_right));
}

BOOST_AUTO_TEST_CASE(an_address_that_guesses_is_closed_but_for_logins_that_were_right) {
  access_world world;
  BOOST_TEST(world.check("u:p").has_value());
  for (int i = 0; i < 10; ++i) BOOST_TEST((fault_of(world.check("root:guess")) == access_fault::no_account));
  const auto closed = world.check("root:secret");
  BOOST_TEST((fault_of(closed) == access_fault::too_many));
  BOOST_TEST((closed.error().retry_after == 60s));
  BOOST_TEST(world.check("u:p").has_value());
  BOOST_TEST(world.check("root:secret", rpc_role::user, "10.0.0.2").has_value());
}

BOOST_AUTO_TEST_CASE(an_authorization_that_is_no_login_is_refused_and_no_guess) {
  access_world world;
  for (int i = 0; i < 20; ++i) {
    const auto outcome = world.look({.authorization = "Bearer x"});
    BOOST_TEST_REQUIRE(outcome.has_value());
    BOOST_TEST((fault_of(*outcome) == access_fault::no_account));
  }
}

BOOST_AUTO_TEST_CASE(a_certificate_stands_for_the_account_of_its_name) {
  access_world world;
  const auto outcome = world.look({.certificate_name = "u"});
  BOOST_TEST_REQUIRE((outcome && *outcome));
  BOOST_TEST((*outcome)->caller == "account u");
  BOOST_TEST((fault_of(*world.look({.certificate_name = "u"}, rpc_role::admin)) == access_fault::no_right));
  BOOST_TEST((fault_of(*world.look({.certificate_name = "w"})) == access_fault::no_account));
}

BOOST_AUTO_TEST_CASE(a_certificate_does_not_help_a_wrong_password) {
  access_world world;
  const std::string text = test::authorization_of("root:guess");
  const auto outcome =
      world.access.check({.certificate_name = "u", .authorization = text}, accounts_of_test(), rpc_role::user, present);
  BOOST_TEST((fault_of(outcome) == access_fault::no_account));
}

BOOST_AUTO_TEST_CASE(nothing_is_decided_while_there_are_no_accounts) {
  access_control access({.need = account_need::all});
  BOOST_TEST(!access.is_ready({}));
  BOOST_TEST(access.is_ready(accounts_of_test()));
  BOOST_TEST(access_control({.need = account_need::none}).is_ready({}));
  const std::string text = test::authorization_of("root:secret");
  const auto outcome = access.look({.authorization = text}, {}, rpc_role::user, present);
  BOOST_TEST_REQUIRE(outcome.has_value());
  BOOST_TEST((fault_of(*outcome) == access_fault::not_ready));
  BOOST_TEST((fault_of(*access.look({}, {}, rpc_role::open, present)) == std::nullopt));
}

BOOST_AUTO_TEST_CASE(rates_count_by_account) {
  access_control access({.rates = {.requests = 1, .keys = 10}});
  const call_access first{.caller = "account a"};
  const call_access second{.caller = "account b"};
  BOOST_TEST(access.admit(first, 1, present).has_value());
  const auto refused = access.admit(first, 1, present);
  BOOST_TEST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().fault == access_fault::too_many));
  BOOST_TEST((refused.error().retry_after == 1s));
  BOOST_TEST(access.admit(second, 1, present).has_value());
  access.charge_keys(second, 39, present);
  const auto indebted = access.admit(second, 1, present + 1s);
  BOOST_TEST_REQUIRE(!indebted.has_value());
  BOOST_TEST((indebted.error().retry_after == 2s));
}

BOOST_AUTO_TEST_CASE(requests_share_the_bytes_that_are_answered_at_once) {
  access_control access({.most_bytes = 100});
  auto first = access.admit({.caller = "a"}, 60, present);
  BOOST_TEST_REQUIRE(first.has_value());
  const auto refused = access.admit({.caller = "b"}, 41, present);
  BOOST_TEST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().fault == access_fault::too_many));
  BOOST_TEST(access.admit({.caller = "b"}, 40, present).has_value());
  { const request_bytes over = std::move(*first); }
  BOOST_TEST(access.admit({.caller = "b"}, 100, present).has_value());
}

BOOST_AUTO_TEST_CASE(a_client_waits_whole_seconds) {
  BOOST_TEST(seconds_of(1ns) == 1U);
  BOOST_TEST(seconds_of(0ns) == 1U);
  BOOST_TEST(seconds_of(1s) == 1U);
  BOOST_TEST(seconds_of(1'001ms) == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

// Passwords that are checked on another thread.
#include "services/manager/service/access_desk.hpp"

#include <boost/test/unit_test.hpp>
#include <future>
#include <thread>

#include "tests/unit/services/manager/service/account_world.hpp"

namespace cenote::manager {

namespace {

const manager_registry& accounts_of_desk() {
  static const manager_registry registry = test::with_account({}, "root", "secret", account_role::admin);
  return registry;
}

struct desk_answer {
  std::promise<access_outcome<call_access>> promise{};
  std::thread::id thread{};

  access_outcome<call_access> wait() { return promise.get_future().get(); }
};

void ask(access_desk& desk, std::string_view login, const std::shared_ptr<desk_answer>& answer) {
  const std::string text = test::authorization_of(login);
  desk.check({.address = "10.0.0.1", .authorization = text}, accounts_of_desk(), rpc_role::user,
             [answer](access_outcome<call_access> outcome) {
               answer->thread = std::this_thread::get_id();
               answer->promise.set_value(std::move(outcome));
             });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(desk_of_access)

BOOST_AUTO_TEST_CASE(a_password_is_checked_on_another_thread) {
  access_desk desk({.need = account_need::all});
  const auto right = std::make_shared<desk_answer>();
  const auto wrong = std::make_shared<desk_answer>();
  ask(desk, "root:secret", right);
  ask(desk, "root:guess", wrong);
  BOOST_TEST(right->wait().has_value());
  BOOST_TEST((right->thread != std::this_thread::get_id()));
  const auto refused = wrong->wait();
  BOOST_TEST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().fault == access_fault::no_account));
}

BOOST_AUTO_TEST_CASE(what_waits_at_the_stop_is_answered) {
  std::promise<void> begun, go;  // declared first: the desk's thread uses them until the desk has ended
  access_desk desk({.need = account_need::all});
  BOOST_TEST(desk.post([&] {
    begun.set_value();
    go.get_future().wait();
  }));
  begun.get_future().wait();
  const auto answer = std::make_shared<desk_answer>();
  ask(desk, "root:secret", answer);
  std::thread stopper([&] { desk.stop(); });
  go.set_value();
  stopper.join();
  (void)answer->wait();  // checked, or refused
}

BOOST_AUTO_TEST_CASE(a_desk_that_has_stopped_refuses) {
  access_desk desk({.need = account_need::all});
  desk.stop();
  const auto answer = std::make_shared<desk_answer>();
  ask(desk, "root:secret", answer);
  const auto refused = answer->wait();
  BOOST_TEST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().fault == access_fault::too_many));
  BOOST_TEST(!desk.post([] {}));
}

BOOST_AUTO_TEST_CASE(checks_that_find_no_room_are_refused) {
  std::promise<void> begun, go;  // declared first: the desk's thread uses them until the desk has ended
  access_desk desk({.need = account_need::all});
  BOOST_TEST(desk.post([&] {
    begun.set_value();
    go.get_future().wait();
  }));
  begun.get_future().wait();
  for (std::size_t i = 0; i < access_desk::most_waiting; ++i) BOOST_TEST(desk.post([] {}));
  const auto answer = std::make_shared<desk_answer>();
  ask(desk, "root:secret", answer);
  const auto refused = answer->wait();
  go.set_value();
  BOOST_TEST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().fault == access_fault::too_many));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

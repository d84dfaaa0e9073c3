#include "actors/instance_maker.hpp"

#include <stdexcept>

#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

BOOST_AUTO_TEST_SUITE(instance_maker_tests)

/// A keeper that remembers what it was told.
struct maker_fixture : actor_fixture {
  ~maker_fixture() {
    caf::anon_send_exit(maker, caf::exit_reason::user_shutdown);
    maker = nullptr;
  }

  void spawn(blocks::instance_number next) {
    maker = system().spawn<instance_maker>(
        next, last_instance_of(0),
        instance_maker::registry{[this](blocks::instance_number number, auto, std::span<const int> fds) {
                                   BOOST_TEST(fds.size() == 2U);
                                   if (throws) throw std::runtime_error("out of luck");
                                   kept.push_back(number);
                                   return answer;
                                 },
                                 [this](blocks::instance_number number) -> result<void> {
                                   dropped.push_back(number);
                                   return {};
                                 }});
  }
  new_instance_ptr make(const std::string& id) {
    auto request = std::make_shared<instance_request>();
    request->spec = small_spec(id);
    const auto made = ask<new_instance_ptr>(maker, make_instance_atom_v, instance_request_ptr(request));
    BOOST_REQUIRE(made);
    return *made;
  }

  instance_maker_actor maker;
  std::vector<blocks::instance_number> kept;
  std::vector<blocks::instance_number> dropped;
  result<void> answer;
  bool throws = false;
};

BOOST_FIXTURE_TEST_CASE(an_instance_that_was_made_has_a_number_of_its_own_and_is_kept, maker_fixture) {
  spawn(7);
  const auto first = make("one");
  const auto second = make("two");
  BOOST_TEST((first->memory && second->memory));
  BOOST_TEST((kept == std::vector<blocks::instance_number>{7, 8}));
  BOOST_TEST((first->number == 7U && second->number == 8U));
}

BOOST_FIXTURE_TEST_CASE(what_the_keeper_does_not_keep_is_not_made, maker_fixture) {
  spawn(7);
  answer = fail(error_code::limit_exceeded, "full");
  const auto made = make("one");
  BOOST_TEST((made->status.code == error_code::limit_exceeded));
  BOOST_TEST(!made->memory);
  BOOST_TEST((dropped == kept));  // it may have it, and only not have said so
}

BOOST_FIXTURE_TEST_CASE(an_exception_ends_one_instance_and_not_the_maker, maker_fixture) {
  spawn(7);
  throws = true;
  BOOST_TEST((make("one")->status.code == error_code::internal));
  throws = false;
  BOOST_TEST((make("one")->status.code == error_code::ok));
}

BOOST_FIXTURE_TEST_CASE(no_number_is_given_twice, maker_fixture) {
  spawn(last_instance_of(0));
  BOOST_TEST((make("one")->status.code == error_code::ok));
  BOOST_TEST((make("two")->status.code == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_SUITE_END()

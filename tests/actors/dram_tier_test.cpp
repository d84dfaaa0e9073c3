#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

batch_ptr batch_of(std::uint64_t session, std::vector<memory::submission> entries) {
  auto work = std::make_shared<dram::batch>();
  work->session = session;
  work->entries = std::move(entries);
  return work;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(dram_tier_actor_tests)

BOOST_FIXTURE_TEST_CASE(a_batch_that_needs_memory_waits_for_the_slab_and_is_answered_then, actor_fixture) {
  const auto client = make_client(1);
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 4)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, work);
  run();
  BOOST_TEST(work->completions.empty());
  BOOST_TEST(!requests().empty());
  provide_memory();
  bool answered = false;
  handle.receive([&](const batch_ptr& done) { answered = done == work; }, [](const caf::error&) {});
  BOOST_TEST(answered);
  BOOST_REQUIRE_EQUAL(work->completions.size(), 1U);
  BOOST_TEST(work->completions[0].value == 4U);
}

BOOST_FIXTURE_TEST_CASE(a_slab_that_cannot_be_made_ends_the_wait_with_no_space, actor_fixture) {
  const auto client = make_client(1);
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 1)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, work);
  run();
  while (!requests().empty()) {
    auto failed = std::make_shared<dram::slab_outcome>();
    failed->slab = requests().front().slab;
    failed->status = fail(error_code::system, "out of memory");
    requests().erase(requests().begin());
    caf::anon_send(dram(), slab_atom_v, failed);
    run();
  }
  handle.receive([](const batch_ptr&) {}, [](const caf::error&) { BOOST_TEST(false, "the batch was not answered"); });
  BOOST_REQUIRE_EQUAL(work->completions.size(), 1U);
  BOOST_TEST(work->completions[0].code == static_cast<std::uint16_t>(error_code::no_space));
}

BOOST_FIXTURE_TEST_CASE(the_end_of_a_session_answers_its_waiting_batch_with_an_error, actor_fixture) {
  const auto client = make_client(1);
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 1)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, work);
  run();
  const auto released = ask<outcome>(dram(), release_atom_v, std::uint64_t{1});
  BOOST_TEST(released.has_value());
  bool failed = false;
  handle.receive([](const batch_ptr&) {}, [&](const caf::error&) { failed = true; });
  BOOST_TEST(failed);
}

BOOST_FIXTURE_TEST_CASE(an_instance_with_another_spec_is_refused_and_the_field_is_named, actor_fixture) {
  instance_spec other = small_spec();
  other.dtype = "fp8";
  const auto answer = ask<outcome>(dram(), find_atom_v, std::make_shared<const instance_spec>(other));
  BOOST_REQUIRE(answer);
  BOOST_TEST((answer->code == error_code::spec_mismatch));
  BOOST_TEST(answer->message.find("dtype") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

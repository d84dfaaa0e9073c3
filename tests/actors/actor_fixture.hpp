// A deterministic actor system around a real DRAM tier; the test makes slab memory when it likes.
#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <boost/test/unit_test.hpp>
#include <memory>
#include <set>
#include <vector>

#include "actors/consensus_messages.hpp"
#include "actors/dram_tier.hpp"
#include "actors/gpu_messages.hpp"
#include "actors/guest_room.hpp"
#include "actors/node.hpp"
#include "actors/nvme_messages.hpp"
#include "actors/prefetch.hpp"
#include "actors/session.hpp"

namespace cenote::testing {

class deterministic_config : public caf::actor_system_config {
 public:
  deterministic_config() {
    add_message_types<caf::id_block::cenote>();
    add_message_types<caf::id_block::cenote_nvme>();
    add_message_types<caf::id_block::cenote_consensus>();
    add_message_types<caf::id_block::cenote_guest>();
    add_message_types<caf::id_block::cenote_gpu>();
    set("scheduler.policy", caf::atom("testing"));
    set("logger.verbosity", caf::atom("quiet"));
  }
};

inline instance_spec small_spec(const std::string& id = "demo") {
  instance_spec spec;
  spec.id = id;
  spec.tokens_per_block = 16;
  spec.groups = {{"default", {{"kv", 4096}}}};
  return spec;
}

/// What a tier below was told; the test answers in its place.
struct told_below {
  std::vector<std::string> order;  ///< "write" and "forget", as they came
  std::vector<removals_ptr> removals;
  outcome forget_answer;
  bool silent = false;  ///< answers no removal
  std::vector<caf::typed_response_promise<outcome>> unanswered;
  std::vector<transfer> reads, writes;
  std::vector<key_query_ptr> questions;
  std::set<block_key> has;    ///< what it says of them
  bool answers_late = false;  ///< only when the test has it tick
  std::vector<std::pair<key_query_ptr, caf::typed_response_promise<key_answer_ptr>>> late;

  [[nodiscard]] key_answer_ptr answer_to(const key_query& asked) const {
    auto answer = std::make_shared<key_answer>();
    for (const full_key& full : asked.keys) {
      answer->held.push_back(has.contains(reduce_key(full.view(), asked.group)));
    }
    return answer;
  }
  bool binds_late = false;
  std::vector<caf::typed_response_promise<void>> binding;  ///< unanswered; fail with the next answer_late()
  std::vector<instance_binding_ptr> bindings;
  std::vector<std::uint32_t> unbound;
};

/// Instances that the tier wants made; the test makes them.
struct wanted_instances {
  struct one {
    instance_request_ptr request;
    caf::typed_response_promise<new_instance_ptr> promise;
  };
  std::vector<one> wanted;
  std::vector<blocks::instance_number> discarded;
};

/// A maker of instances that waits until the test says what it made.
using held_maker_actor = instance_maker_actor::extend<caf::reacts_to<answer_atom, new_instance_ptr>>;

/// What the DRAM tier has below it. Of two the second one has no hints.
enum class below : std::uint8_t { nothing, a_tier, a_tier_that_gets_all, two_tiers };

/// One tier, one instance (number 1), sessions on demand. Single-threaded: run() carries out every message.
class actor_fixture {
 public:
  explicit actor_fixture(below has = below::nothing, const dram_tier::tell_watched& watches = {}) : system_(config_) {
    blocks::store_options options;
    options.watch = watches ? blocks::request_watch::all : blocks::request_watch::none;
    options.capacity = std::uint64_t{8} << 20;
    if (has != below::nothing) {
      options.edges.resize(has == below::two_tiers ? 2 : 1);
      if (has == below::a_tier_that_gets_all) options.edges[0].ingest = blocks::ingest::all;
      for (blocks::edge_options& each : options.edges) each.read_window = each.write_window = options.capacity;
      if (has == below::two_tiers) options.edges[1].hinted = false;
      for (std::size_t edge = 0; edge < options.edges.size(); ++edge) {
        told_.push_back(std::make_shared<told_below>());
        below_.push_back({edge == 0 ? "the tier below" : "the second tier below", spawn_below(told_[edge])});
      }
    }
    auto records = memory::record_table::create();
    BOOST_REQUIRE(records);
    auto store = std::make_unique<blocks::store>(options, std::move(*records));
    auto index = memory::shared_file::create("test-index", memory::index_segment_bytes);
    auto versions = memory::shared_file::create("test-versions", memory::version_table::segment_bytes);
    BOOST_REQUIRE(index && versions);
    auto seen = memory::shared_file::adopt(std::move(*index->fd().duplicate()), index->size());
    auto writer = memory::index_writer::create(std::move(*index));
    auto table = memory::version_table::create(std::move(*versions));
    BOOST_REQUIRE(seen && writer && table);
    auto view = memory::index_memory::open(std::move(*seen), memory::access::read_only);
    BOOST_REQUIRE(view);
    index_memory_ = std::move(*view);
    BOOST_REQUIRE(store->add_instance(1, small_spec(), std::move(*writer), std::move(*table)));
    maker_ = spawn_maker(wanted_);
    dram_ = system_.spawn<dram_tier>(
        std::move(store), std::vector<session_ptr>{},
        [this](std::vector<blocks::slab_request> requests) {
          for (auto& request : requests) requests_.push_back(std::move(request));
        },
        below_, std::shared_ptr<health>{}, maker_, dram_tier::tell_news{}, block_tier_role{}, watches);
    prefetch::options plan;
    plan.threshold_tokens = 0;
    plan.policy = memory::prefetch_policy::wait_complete;
    prefetch_ = system_.spawn<prefetch_planner>(plan, dram_, below_, [this] { return now_; });
    run();
  }
  ~actor_fixture() {
    caf::anon_send_exit(prefetch_, caf::exit_reason::user_shutdown);
    prefetch_ = nullptr;
    caf::anon_send_exit(dram_, caf::exit_reason::user_shutdown);
    dram_ = nullptr;
    caf::anon_send_exit(maker_, caf::exit_reason::user_shutdown);
    maker_ = nullptr;
    wanted_->wanted.clear();
    for (const lower_tier& each : below_) caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
    below_.clear();
    run();
  }
  actor_fixture(const actor_fixture&) = delete;
  actor_fixture& operator=(const actor_fixture&) = delete;

  void run() { scheduler().run(); }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  caf::actor_system& system() { return system_; }
  const dram_tier_actor& dram() const { return dram_; }
  const prefetch_actor& prefetch() const { return prefetch_; }
  /// What the planner of prefetches takes for now.
  prefetch::time_point& now() { return now_; }
  const memory::index_reader& index() const { return index_; }
  std::vector<blocks::slab_request>& requests() { return requests_; }
  told_below& told(blocks::edge_number edge = 0) { return *told_.at(edge); }

  /// The tier below answers what it was asked a while ago.
  void answer_late(blocks::edge_number edge) {
    caf::anon_send(below_.at(edge).actor, tick_atom_v);
    run();
  }
  wanted_instances& wanted() { return *wanted_; }

  /// Makes the instance that the tier waits for, or says why not.
  void make_wanted(blocks::instance_number number, outcome status = {}) {
    BOOST_REQUIRE(wanted_->wanted.size() == 1U);  // it asks for one at a time
    auto made = std::make_shared<new_instance>();
    made->status = std::move(status);
    made->number = number;
    if (made->status.code == error_code::ok) {
      auto memory = memory::instance_memory::create(wanted_->wanted.front().request->spec.id);
      BOOST_REQUIRE(memory);
      made->memory = std::move(*memory);
    }
    caf::anon_send(maker_, answer_atom_v, made);
    run();
  }

  /// Carries out what the tier asked of its provisioner.
  void provide_memory() {
    for (auto& request : std::exchange(requests_, {})) {
      auto outcome = std::make_shared<blocks::slab_outcome>();
      outcome->what = request.what;
      outcome->slab = request.slab;
      if (request.what == blocks::slab_request::kind::create) {
        auto memory = blocks::make_slab_memory(request.slab, false, -1);
        BOOST_REQUIRE(memory);
        outcome->memory = std::move(*memory);
      }
      caf::anon_send(dram_, slab_atom_v, outcome);
    }
    run();
  }

  /// Sends and carries out; the answer, or nothing when the request failed.
  template <class Answer, class Actor, class... Arguments>
  std::optional<Answer> ask(const Actor& whom, Arguments... arguments) {
    std::optional<Answer> answer;
    caf::scoped_actor self(system_);
    auto handle = self->request(whom, std::chrono::seconds(10), arguments...);
    run();
    handle.receive([&](const Answer& value) { answer = value; }, [](const caf::error&) {});
    return answer;
  }

  std::shared_ptr<session_resources> make_client(std::uint64_t number) {
    auto session = std::make_shared<session_resources>();
    session->number = number;
    session->instance = 1;
    session->pin_slots = 64;
    BOOST_REQUIRE(make_session(*session));
    const auto opened = ask<outcome>(dram_, open_atom_v, session_ptr(session));
    BOOST_REQUIRE(opened && opened->code == error_code::ok);
    return session;
  }

 private:
  lower_tier_actor spawn_below(const std::shared_ptr<told_below>& told) {
    const auto drop = [](const auto&...) {};
    return system_.spawn([told, drop](lower_tier_actor::pointer self) -> lower_tier_actor::behavior_type {
      return {[drop](above_atom, blocks::edge_number) { drop(); },
              [told, self](bind_atom, const instance_binding_ptr& binding) -> caf::result<void> {
                told->bindings.push_back(binding);
                if (!told->binds_late) return caf::unit;
                return told->binding.emplace_back(self->make_response_promise<void>());
              },
              [told](unbind_atom, std::uint32_t instance) { told->unbound.push_back(instance); },
              [told](write_atom, const transfers_ptr& blocks) {
                told->order.emplace_back("write");
                told->writes.insert(told->writes.end(), blocks->begin(), blocks->end());
              },
              [told](fetch_atom, const transfers_ptr& blocks) {
                told->reads.insert(told->reads.end(), blocks->begin(), blocks->end());
              },
              [told, self](locate_atom, const key_query_ptr& asked) -> caf::result<key_answer_ptr> {
                told->questions.push_back(asked);
                if (!told->answers_late) return told->answer_to(*asked);
                return told->late.emplace_back(asked, self->make_response_promise<key_answer_ptr>()).second;
              },
              [told, self](forget_atom, const removals_ptr& removals) -> caf::result<outcome> {
                told->order.emplace_back("forget");
                told->removals.push_back(removals);
                if (!told->silent) return told->forget_answer;
                return told->unanswered.emplace_back(self->make_response_promise<outcome>());
              },
              [](report_atom) -> tier_report_ptr { return std::make_shared<const tier_report>("below"); },
              [told](tick_atom) {
                for (auto& [asked, promise] : std::exchange(told->late, {})) promise.deliver(told->answer_to(*asked));
                for (auto& each : std::exchange(told->binding, {})) each.deliver(make_error(caf::sec::runtime_error));
              },
              [drop](reload_atom, const config_ptr&) { drop(); }};
    });
  }

  held_maker_actor spawn_maker(const std::shared_ptr<wanted_instances>& wanted) {
    return system_.spawn([wanted](held_maker_actor::pointer self) -> held_maker_actor::behavior_type {
      return {[wanted, self](make_instance_atom, const instance_request_ptr& request) -> caf::result<new_instance_ptr> {
                const auto promise = self->make_response_promise<new_instance_ptr>();
                wanted->wanted.push_back({request, promise});
                return promise;
              },
              [wanted](discard_instance_atom, blocks::instance_number number) { wanted->discarded.push_back(number); },
              [wanted](answer_atom, const new_instance_ptr& made) {
                wanted_instances::one first = std::move(wanted->wanted.front());
                wanted->wanted.erase(wanted->wanted.begin());
                first.promise.deliver(made);
              }};
    });
  }

  deterministic_config config_;
  caf::actor_system system_;
  memory::index_memory index_memory_;
  memory::index_reader index_{index_memory_.tables};
  std::vector<blocks::slab_request> requests_;
  std::shared_ptr<wanted_instances> wanted_ = std::make_shared<wanted_instances>();
  std::vector<std::shared_ptr<told_below>> told_;  ///< by edge
  std::vector<lower_tier> below_;
  held_maker_actor maker_;
  dram_tier_actor dram_;
  prefetch_actor prefetch_;
  prefetch::time_point now_{std::chrono::hours(1)};
};

inline full_key key_of(std::uint64_t n) {
  full_key key;
  key.size = 16;
  std::memcpy(key.bytes.data(), &n, sizeof n);
  return key;
}

inline memory::submission entry_of(memory::operation op, std::uint32_t request, std::uint64_t argument = 0) {
  memory::submission entry;
  entry.op = op;
  entry.request = request;
  entry.argument = argument;
  entry.flags = memory::submission::flag_last;
  return entry;
}

/// A commit of the block in the client's first granted slot, which it takes.
inline memory::submission commit_of(const session_resources& client, std::uint32_t request, std::uint64_t key) {
  memory::submission entry = entry_of(memory::operation::commit, request);
  for (std::size_t slot = 0; slot < memory::session_memory::grants; ++slot) {
    std::uint64_t word = client.view.grant(slot).word.load();
    if (memory::grant_slot::state_of(word) != memory::grant_slot::granted) continue;
    client.view.grant(slot).word.store(
        memory::grant_slot::make(memory::grant_slot::version_of(word), 0, memory::grant_slot::taken));
    entry.block = client.view.grant(slot).block.load();
    entry.grant_version = memory::grant_slot::version_of(word);
    break;
  }
  const full_key full = key_of(key);
  entry.key_size = full.size;
  std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
  return entry;
}

}  // namespace cenote::testing

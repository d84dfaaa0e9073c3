// Calls of clients and operators in any order, upon a manager whose writer runs without a thread.
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/byte_io.hpp"
#include "services/manager/registry/config_snapshot.hpp"
#include "services/manager/service/meta_calls.hpp"
#include "services/manager/writes/served_blocks.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager {

namespace {

/// The world of the sequence that is played.
test::write_world*& world_of_writer() {
  static test::write_world* world = nullptr;
  return world;
}

std::shared_ptr<const served_view> view_of(const manager_state& state) {
  auto storages = std::make_shared<storage_table>();
  for (const auto& storage : state.storages) {
    if (storage == nullptr) continue;
    (*storages)[storage->terms->number] =
        std::make_shared<const served_storage>(served_storage{.terms = storage->terms, .signal = storage->signal});
  }
  auto view = std::make_shared<served_view>();
  view->settings = state.settings;
  view->is_ready = true;
  view->storages = storages;
  for (const auto& [id, number] : state.instance_numbers) {
    const instance_state& instance = *state.instance(number);
    view->instances.emplace(
        id, std::make_shared<const served_instance>(instance.terms, instance.group->terms, instance.index, storages));
  }
  return view;
}

}  // namespace

// In the place of manager_writer.cpp: a command is complete when post() returns.
manager_writer::manager_writer(writer_options options) : options_(std::move(options)) {
  views_.show(view_of(world_of_writer()->live->state));
}

void manager_writer::stop() noexcept {}

void manager_writer::post(std::unique_ptr<write_command> command) {
  test::write_world& world = *world_of_writer();
  for (const auto& used : uses_.take()) {
    instance_state* const instance = world.live->state.instance(used->instance);
    if (instance != nullptr) note_uses(*instance, used->records, tenths_of(world.now));
  }
  world.post(std::move(command));
  static_cast<void>(world.run_commands());
  world.probe();
  views_.show(view_of(world.live->state));
}

}  // namespace cenote::manager

namespace {

using namespace cenote::manager;
using namespace cenote::manager::test;
using cenote::byte_reader;
using cenote::fuzz::bytes_view;
using google::protobuf::Message;

namespace meta = cenote::manager::proto::meta;
namespace admin = cenote::manager::proto::admin;

void require(bool is_so) {
  if (!is_so) std::abort();
}

/// The sequence that an input means, and the manager that gets it.
class call_sequence {
 public:
  explicit call_sequence(bytes_view input) : input_(input) { world_.reclaims = true; }

  void play() {
    for (int step = 0; step < most_steps && input_.remaining() != 0; ++step) play_step();
    check();
    end();
  }

 private:
  static constexpr int most_steps = 40;

  struct open_session {
    std::string instance{};
    std::string name{};
    std::vector<int> specs{};  ///< of each granted block
  };
  struct shown_world {
    explicit shown_world(write_world& world) { world_of_writer() = &world; }
  };

  std::uint8_t byte() { return input_.get<std::uint8_t>(); }
  std::size_t draw(std::size_t bound) { return byte() % bound; }
  template <class Value>
  Value choose(std::initializer_list<Value> values) {
    return *(values.begin() + draw(values.size()));
  }
  std::string text() {
    const auto run = input_.get_run(std::min<std::size_t>(input_.get<std::uint16_t>(), input_.remaining()));
    return {reinterpret_cast<const char*>(run.data()), run.size()};
  }
  std::string instance() { return choose<const char*>({"i", "i", "j", "k", ""}); }

  template <class Request>
  void add_keys(Request& request) {
    const std::size_t form = draw(8), count = draw(12);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t key = byte() % 48;
      if (form < 6) {
        request.add_block_keys(static_cast<std::int64_t>(key));
      } else if (form == 6) {
        request.add_byte_keys(std::string(1, static_cast<char>(key)) + std::string(key % 7 == 0 ? 14 : 15, '\0'));
      } else {
        for (int token = 0; token < 64; ++token) request.add_token_ids(static_cast<std::int64_t>(key));
      }
    }
  }
  int key_count(const auto& request) {
    return request.block_keys_size() + request.byte_keys_size() + request.token_ids_size() / 64;
  }
  void fill_mask(proto::BlockMask& mask, int count) {
    const std::size_t form = draw(4);
    if (form == 0) return mask.set_offset(static_cast<std::int8_t>(byte()));
    if (form == 1) return mask.set_offset(count);
    if (form == 2) count = byte() % 16;
    mask.mutable_bool_masks();
    const auto bits = input_.get<std::uint16_t>();
    for (int i = 0; i < count; ++i) mask.mutable_bool_masks()->add_values((bits >> i % 16 & 1U) != 0);
  }
  template <class Request>
  void add_mask(Request& request) {
    if (draw(2) == 0) fill_mask(*request.mutable_block_mask(), key_count(request));
  }
  template <class Request>
  void fill_question(Request& request) {
    request.set_instance_id(instance());
    add_keys(request);
    request.set_query_type(static_cast<proto::QueryType>(draw(7)));
    request.set_sw_size(static_cast<std::int8_t>(byte()));
  }

  /// A call's answer, in both forms.
  std::string call(rpc name, std::string_view body) {
    std::string wire, json;
    int answers = 0;
    const auto done =
        calls_.call(name, {.form = answer_form::wire, .text = body}, {}, [&](const answer_writer& answer) {
          ++answers;
          require(answer.code() != answer_code::internal_error && answer.code() != answer_code::unspecified);
          answer(answer_form::wire, wire);
          answer(answer_form::json, json);
        });
    require(answers == (done ? 1 : 0));
    if (!done) return {};
    meta::CommonResponse header;
    require(read_json(json, header).has_value());
    const auto code = header.header().status().code();
    require(header.ParseFromString(wire) && header.header().status().code() == code && code != 0);
    return wire;
  }
  template <class Response>
  Response ask(rpc name, const Message& request) {
    Response response;
    require(response.ParseFromString(call(name, request.SerializeAsString())));
    return response;
  }
  static bool is_ok(const auto& response) { return response.header().status().code() == proto::OK; }

  void play_step() {
    switch (draw(20)) {
      case 0:
      case 1:
      case 2:
      case 3: return start();
      case 4:
      case 5:
      case 6: return finish();
      case 7: return remove();
      case 8: return trim();
      case 9:
      case 10: return locate();
      case 11: return read_meta();
      case 12: return add_instance();
      case 13: has_new_terms_ = true; return change_group();
      case 14: has_new_terms_ = true; return change_storage();
      case 15: has_new_terms_ = true; return load();
      case 16: return world_.pass(std::chrono::milliseconds(input_.get<std::uint16_t>()));
      case 17: return fail_storage();
      case 18: return recover();
      default: return send_bytes();
    }
  }

  void start() {
    meta::StartWriteCacheRequest request;
    request.set_instance_id(instance());
    add_keys(request);
    request.set_write_timeout_seconds(choose({0, 0, 1, 30, -1, INT32_MAX}));
    request.set_min_replica_count(choose({0, 0, 1, 2, 3, -1, INT32_MAX}));
    if (const std::size_t form = draw(4); form < 2) {
      const int count = form == 0 ? key_count(request) : static_cast<int>(draw(4));
      for (int i = 0; i < count; ++i) {
        request.add_location_spec_group_names(choose<const char*>({"a", "b", "ab", "ab", "c"}));
      }
    }
    const auto grant = ask<meta::StartWriteCacheResponse>(rpc::start_write_cache, request);
    if (!is_ok(grant)) return;
    open_session session{.instance = request.instance_id(), .name = grant.write_session_id()};
    for (const auto& place : grant.locations()) session.specs.push_back(place.location_specs_size());
    sessions_.push_back(std::move(session));
  }
  void finish() {
    meta::FinishWriteCacheRequest request;
    request.set_instance_id(instance());
    int blocks = 0, sums = 0;
    const std::size_t number = draw(sessions_.size() + 1);
    if (number < sessions_.size()) {
      const open_session& session = sessions_[number];
      if (draw(8) != 0) request.set_instance_id(session.instance);
      request.set_write_session_id(session.name);
      blocks = static_cast<int>(session.specs.size());
      for (const int specs : session.specs) sums += specs;
    } else {
      request.set_write_session_id(text());
    }
    if (draw(8) != 0) fill_mask(*request.mutable_success_blocks(), blocks);
    const std::size_t form = draw(4);
    if (form == 0) sums = byte() % 8;
    for (int i = 0; form < 2 && i < sums; ++i) request.add_checksums(byte());
    static_cast<void>(ask<meta::CommonResponse>(rpc::finish_write_cache, request));
  }
  void remove() {
    proto::RemoveCacheRequest request;
    request.set_instance_id(instance());
    add_keys(request);
    add_mask(request);
    static_cast<void>(ask<meta::CommonResponse>(rpc::remove_cache, request));
  }
  void trim() {
    meta::TrimCacheRequest request;
    request.set_instance_id(instance());
    request.set_strategy(static_cast<meta::TrimStrategy>(draw(5)));
    const auto now = static_cast<std::int32_t>(unix_seconds());
    request.set_begin_timestamp(choose({0, now - 1, now, now + 1, INT32_MIN, INT32_MAX}));
    request.set_end_timestamp(choose({0, now - 1, now, now + 1, INT32_MIN, INT32_MAX}));
    static_cast<void>(ask<meta::CommonResponse>(rpc::trim_cache, request));
  }
  void locate() {
    meta::GetCacheLocationRequest request;
    fill_question(request);
    add_mask(request);
    if (draw(3) == 0) request.add_location_spec_names(choose<const char*>({"a", "b", "c"}));
    const auto found = ask<meta::GetCacheLocationResponse>(rpc::get_cache_location, request);
    if (request.query_type() == proto::QT_BATCH_GET && is_ok(found)) {
      require(found.locations_size() == key_count(request));
    }
    meta::GetCacheLocationLenRequest length;
    fill_question(length);
    static_cast<void>(ask<meta::GetCacheLocationLenResponse>(rpc::get_cache_location_len, length));
  }
  void read_meta() {
    proto::GetCacheMetaRequest request;
    request.set_instance_id(instance());
    add_keys(request);
    add_mask(request);
    static_cast<void>(ask<meta::GetCacheMetaResponse>(rpc::get_cache_meta, request));
    meta::GetCacheLocationsByBackendRequest by_backend;
    fill_question(by_backend);
    add_mask(by_backend);
    by_backend.add_backend_selectors()->set_backend_type(choose({proto::ST_NFS, proto::ST_3FS, proto::ST_REDIS}));
    static_cast<void>(ask<meta::GetCacheLocationsByBackendResponse>(rpc::get_cache_locations_by_backend, by_backend));
  }

  void change(const registry_edit& edit) {
    writer_.post(std::make_unique<registry_command>(edit, [](const rpc_outcome<std::string>& outcome) {
      require(outcome || outcome.error().code != answer_code::internal_error);
    }));
  }
  void add_instance() {
    const std::string id = choose<const char*>({"i", "j", "k", "j"});
    if (draw(3) == 0) {
      return change([&](const change_basis& basis) { return basis.settings.remove_instance("", id); });
    }
    auto request = registration(instance_json(id, choose<const char*>({"g", "g", "h"})));
    if (draw(4) == 0) request.set_default_query_type(static_cast<proto::QueryType>(draw(6)));
    if (draw(4) == 0) request.mutable_location_spec_infos(0)->set_size(input_.get<std::int64_t>());
    static_cast<void>(ask<meta::RegisterInstanceResponse>(rpc::register_instance, request));
    proto::GetInstanceInfoRequest question;
    question.set_instance_id(id);
    static_cast<void>(ask<meta::GetInstanceInfoResponse>(rpc::get_instance_info, question));
  }
  void change_group() {
    group_values values;
    values.name = choose<const char*>({"g", "g", "h"});
    values.candidates = choose<const char*>({R"("s1","s2")", R"("s2")", R"("s2","s1","t1")", ""});
    values.capacity = choose<std::int64_t>({40'000, 8'000, 768, 1, 0, -1, INT64_MAX, 1'000'000'000});
    values.type_quotas = choose<const char*>(
        {"", R"({"storage_type":"ST_NFS","capacity":4000})", R"({"storage_type":"ST_3FS","capacity":0})"});
    values.max_keys = choose<std::int64_t>({1'000'000, 30, 5, 1});
    values.level = choose({0.9, 0.5, 1.0, 3.0});
    values.step_percentage = choose<std::uint32_t>({5, 50, 100});
    values.delay_ms = choose<std::int64_t>({0, 1'500, 100'000});
    values.strategy = choose<const char*>({"", R"(,"reclaim_policy":"POLICY_LFU")", R"(,"reclaim_policy_name":"fifo")",
                                           R"(,"reclaim_policy":"POLICY_TTL","ttl_seconds":1)",
                                           R"(,"instance_reclaim_budget_policy":1)"});
    values.is_paused = draw(4) == 0;
    const std::size_t form = draw(8);
    change([&](const change_basis& basis) {
      if (form == 0) return basis.settings.remove_group(values.name);
      const auto stored = basis.settings.find_group(values.name);
      if (stored == nullptr) return basis.settings.create_group(test::group(json_of(values)));
      values.version = stored->terms.version + 1;
      return basis.settings.update_group(test::group(json_of(values)), stored->terms.version - (form == 1 ? 1 : 0));
    });
  }
  void change_storage() {
    const std::string name = choose<const char*>({"s1", "s2", "t1", "r"});
    const auto force = draw(2) == 0 ? change_force::none : change_force::drops_locations;
    const std::size_t form = draw(5);
    const std::string json = name == "t1"
                                 ? threefs_json(name)
                                 : storage_json(name, byte(), choose<std::uint64_t>({0, 9'000, 100, INT64_MAX}));
    change([&](const change_basis& basis) {
      switch (form) {
        case 0: return basis.settings.add_storage(test::storage(json));
        case 1: return basis.settings.update_storage(test::storage(json), basis.use(name), force);
        case 2: return basis.settings.switch_storage(name, storage_switch::disabled);
        case 3: return basis.settings.switch_storage(name, storage_switch::enabled);
        default: return basis.settings.remove_storage(name, basis.use(name), force);
      }
    });
  }
  void load() {
    const std::string part = text();
    change([&](const change_basis& basis) {
      const std::string snapshot = part.empty() ? make_snapshot(basis.settings) : part;
      return load_snapshot(basis.settings, snapshot, basis.use);
    });
  }
  void fail_storage() {
    world_.log->let_work();
    if (draw(2) == 0) world_.log->let_fail(choose<const char*>({"s1", "s2", "t1"}));
  }
  /// Any bytes as any call.
  void send_bytes() {
    const auto name = static_cast<rpc>(draw(static_cast<std::size_t>(rpc::get_cluster_info)));
    static_cast<void>(call(name, text()));
  }
  void recover() {
    check();
    world_.recover();
    change([](const change_basis& basis) -> rpc_outcome<registry_change> {
      return registry_change{.next = basis.settings};
    });
  }

  void check() {
    static_cast<void>(world_.run_round());
    const auto second = world_.recovered_copy();
    BOOST_TEST(picture_of(second->state) == picture_of(world_.live->state), picture_of(world_.live->state)
                                                                                << "\n-- recovered --\n"
                                                                                << picture_of(second->state));
    check_counts(world_.live->state);
    check_counts(second->state);
    check_queued(*second);
    if (!has_new_terms_) check_quotas(world_.live->state);
  }
  /// Where everything is removed, nothing is charged.
  void end() {
    world_.log->let_work();
    for (const auto& [id, number] : world_.live->state.instance_numbers) {
      require(world_.trim({.instance = id}) == answer_code::ok);
    }
    world_.pass(std::chrono::hours(30));
    world_.settle();
    world_.settle();
    check();
    require(world_.live->sessions.size() == 0 && world_.has_registry_alone());
    for (const auto& [name, group] : world_.live->state.groups) require(group->bytes.used == 0);
  }

  byte_reader input_;
  write_world world_{{.candidates = R"("s1","s2")", .capacity = 40 * 768, .max_keys = 30, .level = 0.8}, 4};
  shown_world board_{world_};
  call_counts counts_;
  manager_writer writer_{{}};
  meta_calls calls_{writer_, {}, read_choice::first, counts_, nullptr};
  std::vector<open_session> sessions_;
  bool has_new_terms_ = false;  ///< quotas may be lower than their use since then
};

void play_calls(bytes_view input) {
  const google::protobuf::LogSilencer silence;  // of texts that are not UTF-8
  call_sequence(input).play();
}

constexpr std::array<cenote::fuzz::codec, 1> codecs{play_calls};

void write_seeds() {
  std::uint32_t random = 28;
  for (int seed = 0; seed < 20; ++seed) {
    std::string steps;
    for (int i = 0; i < 400; ++i) {
      random = random * 1'664'525U + 1'013'904'223U;
      steps += static_cast<char>(random >> 24U);
    }
    cenote::fuzz::write_seed(0, std::as_bytes(std::span(steps)));
  }
}

}  // namespace

cenote::fuzz::target cenote::fuzz::make_target() {
  return {.codecs = ::codecs, .write_seeds = ::write_seeds};
}

// The manager in this process: lookups with addresses, sessions with a journal in RocksDB, readers beside each other.
#include <google/protobuf/util/json_util.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <semaphore>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "commands/bench/private_server.hpp"
#include "commands/bench/support.hpp"
#include "services/manager/service/call_desk.hpp"
#include "services/manager/store/redis_journal.hpp"
#include "services/manager/store/rocks_journal.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::bench {

namespace {

using namespace manager;
namespace meta = proto::meta;

constexpr std::size_t chain_keys = 1'000;
constexpr std::uint64_t default_keys = 1'000'000;
constexpr std::size_t instances = 100;
constexpr std::size_t window_keys = 8;
constexpr unsigned default_rounds = 400;
constexpr double microseconds = 1e6;

/// A number that looks random, the same each time.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e37'79b9'7f4a'7c15U;
  number = (number ^ (number >> 30U)) * 0xbf58'476d'1ce4'e5b9U;
  number = (number ^ (number >> 27U)) * 0x94d0'49bb'1331'11ebU;
  return number ^ (number >> 31U);
}

/// Bytes of this process in memory.
std::int64_t resident_memory() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// A manager of this process, and the chains of keys that it is filled with.
class manager_bench {
 public:
  manager_bench(const options& options, report& out, scratch_directory folder, std::uint64_t keys)
      : rounds_(options.rounds == 0 ? default_rounds : options.rounds),
        out_(out),
        folder_(std::move(folder)),
        chains_(std::max<std::uint64_t>(keys / chain_keys, instances)),
        writer_(std::make_unique<manager_writer>(writer_options{.open_journal = opener(), .name = "bench"})),
        parts_(parts_of(*writer_)),
        desk_(std::make_unique<call_desk>(*parts_)),
        reads_(std::make_unique<meta_calls>(*writer_, settings_.limits, settings_.choice, counts_, nullptr)) {}

  result<void> run() {
    if (auto made = set_up(); !made) return made;
    if (auto filled = fill(); !filled) return filled;
    find_prefixes("one", 120);
    find_prefixes("eight", 200);
    find_other_ways();
    write_sessions();
    read_side_by_side();
    if (auto restarted = restart(opener(), "restart, per 10 million keys", 5); !restarted) return restarted;
    return restart_from_redis();
  }

 private:
  [[nodiscard]] face_parts parts_of(manager_writer& writer) {
    return {.writer = writer, .access = access_, .counts = counts_, .settings = settings_};
  }
  [[nodiscard]] journal_opener opener() const {
    return [folder = folder_ / "journal"](const std::stop_token&) -> result<std::unique_ptr<journal>> {
      return rocks_journal::open({.folder = folder});
    };
  }

  /// Asks and waits for the answer.
  template <class Request>
  std::string ask(call_desk& desk, enum manager::rpc name, const Request& request, answer_form form) {
    std::string body, answer;
    append_message(request, form, body);
    std::binary_semaphore is_there(0);
    const auto called = desk.call(row_of(name), form, body, {}, [&](const answer_writer& write) {
      write(form, answer);
      is_there.release();
    });
    if (called) is_there.acquire();
    return answer;
  }
  template <class Response, class Request>
  Response call(enum manager::rpc name, const Request& request) {
    Response response;
    (void)response.ParseFromString(ask(*desk_, name, request, answer_form::wire));
    return response;
  }
  template <class Request>
  result<void> change(enum manager::rpc name, const Request& request) {
    const auto response = call<proto::admin::CommonResponse>(name, request);
    if (response.header().status().code() == proto::OK) return {};
    return fail(error_code::internal, response.header().status().message());
  }

  result<void> set_up() {
    const stopwatch time;
    while (!desk_->is_healthy()) {
      if (time.seconds() > 30) return fail(error_code::deadline_exceeded, "the manager does not recover");
      std::this_thread::yield();
    }
    proto::admin::AddStorageRequest storage;
    storage.mutable_storage()->set_global_unique_name("files");
    storage.mutable_storage()->mutable_nfs()->set_root_path(folder_ / "blocks");
    storage.mutable_storage()->mutable_nfs()->set_key_count_per_file(64);
    if (auto added = change(manager::rpc::add_storage, storage); !added) return added;
    proto::admin::CreateInstanceGroupRequest group;
    auto& terms = *group.mutable_instance_group();
    terms.set_name("group");
    terms.add_storage_candidates("files");
    terms.set_version(1);
    terms.mutable_quota()->set_capacity(std::int64_t{1} << 60U);
    terms.mutable_cache_config()->mutable_reclaim_strategy()->mutable_trigger_strategy()->set_used_percentage(0.9);
    if (auto created = change(manager::rpc::create_instance_group, group); !created) return created;
    for (std::size_t i = 0; i < instances; ++i) {
      if (auto made = add_instance("one", i, 1); !made) return made;
    }
    return add_instance("eight", 0, 8);
  }

  static std::string name_of(std::string_view kind, std::uint64_t chain) {
    return std::string(kind) + "-" + std::to_string(kind == "one" ? chain % instances : 0);
  }

  result<void> add_instance(std::string_view kind, std::size_t number, int specs) {
    proto::RegisterInstanceRequest request;
    request.set_instance_group("group");
    request.set_instance_id(name_of(kind, number));
    request.set_block_size(16);
    request.mutable_model_deployment()->set_model_name("m");
    request.mutable_model_deployment()->set_dtype("bf16");
    for (int i = 0; i < specs; ++i) {
      auto& spec = *request.add_location_spec_infos();
      spec.set_name("tp" + std::to_string(i));
      spec.set_size(1 << 20);
    }
    const auto response = call<meta::RegisterInstanceResponse>(manager::rpc::register_instance, request);
    if (response.header().status().code() == proto::OK) return {};
    return fail(error_code::internal, response.header().status().message());
  }

  template <class Request>
  static Request with_keys(std::string_view kind, std::uint64_t chain) {
    Request request;
    request.set_instance_id(name_of(kind, chain));
    request.mutable_block_keys()->Reserve(chain_keys);
    for (std::uint64_t i = 0; i < chain_keys; ++i) {
      request.add_block_keys(static_cast<std::int64_t>(mixed(chain * chain_keys + i)));
    }
    return request;
  }

  /// Begins a session and gives its name.
  std::string begin(std::string_view kind, std::uint64_t chain) {
    auto request = with_keys<meta::StartWriteCacheRequest>(kind, chain);
    return call<meta::StartWriteCacheResponse>(manager::rpc::start_write_cache, request).write_session_id();
  }
  meta::FinishWriteCacheRequest finish_of(std::string_view kind, std::uint64_t chain, const std::string& session) {
    meta::FinishWriteCacheRequest request;
    request.set_instance_id(name_of(kind, chain));
    request.set_write_session_id(session);
    request.mutable_success_blocks()->set_offset(chain_keys);
    return request;
  }

  result<void> fill() {
    const auto previous = resident_memory();
    for (std::uint64_t chain = 0; chain < chains_; ++chain) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      const auto request = finish_of("one", chain, begin("one", chain));
      (void)call<meta::CommonResponse>(manager::rpc::finish_write_cache, request);
    }
    const double memory = static_cast<double>(resident_memory() - previous);
    // With few keys the journal's own memory is most of it.
    const std::uint64_t count = chains_ * chain_keys;
    const bound most = count >= 10'000'000 ? bound{bound::kind::value_at_most, 128} : bound{};
    out_.add({.bench = "manager",
              .name = std::to_string(count) + " keys: memory",
              .value = memory / static_cast<double>(count),
              .unit = "bytes/key",
              .promise = most});
    for (std::uint64_t chain = 0; chain < 10; ++chain) {
      const auto request = finish_of("eight", chain, begin("eight", chain));
      (void)call<meta::CommonResponse>(manager::rpc::finish_write_cache, request);
    }
    return {};
  }

  void add(std::string_view name, const samples& times, double limit) {
    out_.add({.bench = "manager",
              .name = std::string(name),
              .value = times.median() * microseconds,
              .unit = "us",
              .low = times.quantile(0.1) * microseconds,
              .high = times.quantile(0.9) * microseconds,
              .promise = {bound::kind::value_at_most, limit}});
  }

  /// A lookup with all addresses, as bytes of gRPC, and as JSON beside json_util's own parsing and printing.
  void find_prefixes(std::string_view kind, double limit) {
    const std::uint64_t chains = kind == "one" ? chains_ : 10;
    samples wire, json, plain;
    std::string answer;  // its memory stays, as that of a server's answers does
    for (unsigned i = 0; i < rounds_ + 50; ++i) {
      const auto request = with_keys<meta::GetCacheLocationRequest>(kind, mixed(i) % chains);
      answer.clear();
      const stopwatch time;
      if (const auto outcome = reads_->get_location(request, {})) (*outcome)(answer_form::wire, answer);
      if (i >= 50) wire.add(time.seconds());
      if (i % 8 != 0) continue;
      meta::GetCacheLocationResponse response;
      (void)response.ParseFromString(answer);
      std::string json_body, json_answer;
      append_message(request, answer_form::json, json_body);
      const stopwatch json_time;
      (void)desk_->call(row_of(manager::rpc::get_cache_location), answer_form::json, json_body, {},
                        [&](const answer_writer& write) { write(answer_form::json, json_answer); });
      json.add(json_time.seconds());
      const stopwatch plain_time;
      meta::GetCacheLocationRequest parsed;
      std::string printed;
      (void)google::protobuf::util::JsonStringToMessage(json_body, &parsed);
      (void)google::protobuf::util::MessageToJsonString(response, &printed);
      plain.add(plain_time.seconds());
    }
    const std::string name =
        std::string("prefix of 1,000 keys with addresses, ") + std::string(kind) + " spec" + (kind == "one" ? "" : "s");
    add(name, wire, limit);
    out_.add(time_figure("manager", name + ", JSON, beside json_util", json, plain, microseconds, "us",
                         {bound::kind::ratio_at_most, 0.34}));
  }

  /// Requests as messages that are read already, answers as bytes of gRPC.
  template <class Request>
  samples time_reads(std::size_t key_count, const Request& make) {
    samples times;
    std::string answer;
    for (unsigned i = 0; i < rounds_ + 50; ++i) {
      auto request = with_keys<meta::GetCacheLocationRequest>("one", mixed(i) % chains_);
      request.mutable_block_keys()->Truncate(static_cast<int>(key_count));
      make(request);
      answer.clear();
      const stopwatch time;
      if (const auto outcome = reads_->get_location(request, {})) (*outcome)(answer_form::wire, answer);
      if (i >= 50) times.add(time.seconds());
    }
    return times;
  }

  void find_other_ways() {
    samples lengths;
    for (unsigned i = 0; i < rounds_ + 50; ++i) {
      const auto request = with_keys<meta::GetCacheLocationLenRequest>("one", mixed(i) % chains_);
      const stopwatch time;
      (void)reads_->get_length(request, {});
      if (i >= 50) lengths.add(time.seconds());
    }
    add("number of hits of 1,000 keys", lengths, 50);
    add("prefix of 1,000 keys of which the first is missing",
        time_reads(chain_keys, [](auto& request) { request.set_block_keys(0, 1); }), 3);
    const auto window = [](auto& request) {
      request.set_query_type(proto::QT_REVERSE_ROLL_SW_MATCH);
      request.set_sw_size(window_keys);
    };
    add("window of 8 of 8 keys", time_reads(window_keys, window), 10);
    add("window of 8 of 1,000 keys, of which 992 entries have names alone", time_reads(chain_keys, window), 50);
    add("batch of 1,000 keys with addresses",
        time_reads(chain_keys, [](auto& request) { request.set_query_type(proto::QT_BATCH_GET); }), 150);
  }

  /// Sessions of 1,000 new keys, the way to the writer's thread and back included, beside a bare batch of RocksDB.
  void write_sessions() {
    samples starts, finishes, plain;
    rocksdb::DB* opened = nullptr;
    rocksdb::Options settings;
    settings.create_if_missing = true;
    if (!rocksdb::DB::Open(settings, folder_ / "plain", &opened).ok()) return;
    const std::unique_ptr<rocksdb::DB> rows(opened);
    const std::string value(chain_keys * sizeof(std::uint64_t), 'x');
    for (unsigned i = 0; i < rounds_; ++i) {
      const std::uint64_t chain = chains_ + 1'000'000 + i;
      const auto request = with_keys<meta::StartWriteCacheRequest>("one", chain);
      const stopwatch time;
      const std::string answer = ask(*desk_, manager::rpc::start_write_cache, request, answer_form::wire);
      starts.add(time.seconds());
      meta::StartWriteCacheResponse started;
      (void)started.ParseFromString(answer);
      const auto finish = finish_of("one", chain, started.write_session_id());
      const stopwatch finish_time;
      (void)ask(*desk_, manager::rpc::finish_write_cache, finish, answer_form::wire);
      finishes.add(finish_time.seconds());
      const stopwatch plain_time;
      rocksdb::WriteBatch batch;
      batch.Put(std::to_string(i), value);
      (void)rows->Write({}, &batch);
      plain.add(plain_time.seconds());
    }
    out_.add(time_figure("manager", "begin of a session of 1,000 keys, beside a bare batch of RocksDB", starts, plain,
                         microseconds, "us", {bound::kind::value_at_most, 500}));
    out_.add(time_figure("manager", "its end, beside that batch", finishes, plain, microseconds, "us",
                         {bound::kind::value_at_most, 100}));
  }

  /// Lookups per second of a thread with a desk of its own, until it is to end.
  double read_rate(const std::atomic<bool>& is_over, std::atomic<bool>* is_done, double seconds) {
    call_desk desk(*parts_);
    std::vector<std::string> bodies(64);
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      append_message(with_keys<meta::GetCacheLocationRequest>("one", mixed(i) % chains_), answer_form::wire, bodies[i]);
    }
    std::string answer;
    std::uint64_t count = 0;
    const stopwatch time;
    while (!is_over.load(std::memory_order_relaxed) && time.seconds() < seconds) {
      answer.clear();
      (void)desk.call(row_of(manager::rpc::get_cache_location), answer_form::wire, bodies[count++ % bodies.size()], {},
                      [&](const answer_writer& write) { write(answer_form::wire, answer); });
    }
    const double rate = static_cast<double>(count) / time.seconds();
    if (is_done != nullptr) is_done->store(true);
    return rate;
  }

  void read_side_by_side() {
    constexpr double seconds = 1;
    const std::atomic<bool> never{false};
    const double alone = read_rate(never, nullptr, seconds);
    double first = 0;
    std::thread other([&] { first = read_rate(never, nullptr, seconds); });
    const double second = read_rate(never, nullptr, seconds);
    other.join();
    out_.add({.bench = "manager",
              .name = "two readers, against one",
              .value = (first + second) / alone,
              .unit = "x",
              .promise = {bound::kind::value_at_least, 1.8}});
    std::atomic<bool> is_done{false};
    double beside = 0;
    std::thread reader([&] { beside = read_rate(never, &is_done, seconds); });
    for (std::uint64_t chain = chains_ + 2'000'000; !is_done.load(); ++chain) {
      const auto request = finish_of("one", chain, begin("one", chain));
      (void)call<meta::CommonResponse>(manager::rpc::finish_write_cache, request);
    }
    reader.join();
    out_.add({.bench = "manager",
              .name = "a reader beside sessions at full rate, against alone",
              .value = beside / alone,
              .unit = "x",
              .promise = {bound::kind::value_at_least, 0.8}});
  }

  /// A new manager with a journal, until it answers.
  result<void> restart(journal_opener open, std::string_view name, double limit) {
    desk_.reset();
    reads_.reset();
    writer_.reset();
    const stopwatch time;
    writer_ = std::make_unique<manager_writer>(writer_options{.open_journal = std::move(open), .name = "bench"});
    parts_.emplace(parts_of(*writer_));
    desk_ = std::make_unique<call_desk>(*parts_);
    while (!desk_->is_healthy()) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const double seconds = time.seconds();
    out_.add({.bench = "manager",
              .name = std::string(name),
              .value = seconds / static_cast<double>(chains_ * chain_keys) * 1e7,
              .unit = "s",
              .promise = {bound::kind::value_at_most, limit}});
    return {};
  }

  /// The same rows on a Redis server, where one is installed.
  result<void> restart_from_redis() {
    auto server = private_server::start(folder_);
    if (!server)
      return server.error().code() == error_code::unsupported ? result<void>() : std::unexpected(server.error());
    const auto url = redis::parse_server_url(server->url());
    if (!url) return std::unexpected(url.error());
    const redis_journal_options options{.access = {.address = url->servers.front()}, .prefix = "bench"};
    desk_.reset();
    writer_.reset();
    if (auto copied = copy_rows(options); !copied) return copied;
    const auto open = [options](const std::stop_token&) -> result<std::unique_ptr<journal>> {
      return redis_journal::make(options);
    };
    if (auto restarted = restart(open, "restart from Redis, per 10 million keys", 15); !restarted) return restarted;
    desk_.reset();
    writer_.reset();
    return {};
  }

  result<void> copy_rows(const redis_journal_options& options) {
    auto source = rocks_journal::open({.folder = folder_ / "journal"});
    auto target = redis_journal::make(options);
    if (!source || !target) return std::unexpected(source ? target.error() : source.error());
    if (auto raised = (*target)->raise_epoch(); !raised) return std::unexpected(raised.error());
    for (const row_kind kind : {row_kind::registry, row_kind::extent, row_kind::mask}) {
      result<void> written;
      const auto read = (*source)->read(kind, [&](std::string_view name, std::string_view value) {
        const journal_row row{.name = std::string(name), .value = std::string(value)};
        if (written) written = (*target)->write({&row, 1});
      });
      if (!read) return read;
      if (!written) return written;
    }
    return {};
  }

  unsigned rounds_;
  report& out_;
  scratch_directory folder_;
  std::uint64_t chains_;
  call_settings settings_;
  call_counts counts_;
  access_desk access_{access_settings{}};
  std::unique_ptr<manager_writer> writer_;
  std::optional<face_parts> parts_;
  std::unique_ptr<call_desk> desk_;
  std::unique_ptr<meta_calls> reads_;
};

}  // namespace

result<void> run_manager_bench(const options& options, report& out) {
  const std::vector<std::uint64_t> sizes = options.blocks.empty() ? std::vector{default_keys} : options.blocks;
  for (const std::uint64_t keys : sizes) {
    auto folder = scratch_directory::make(std::filesystem::absolute(options.path).string());
    if (!folder) return std::unexpected(folder.error());
    if (auto done = manager_bench(options, out, std::move(*folder), keys).run(); !done) return done;
  }
  return {};
}

}  // namespace cenote::bench

// Sessions with a journal in RocksDB, from the message to the answer of the writer's thread.
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "commands/bench/manager/rows.hpp"
#include "commands/bench/manager/work_thread.hpp"

namespace cenote::bench {

namespace {

using namespace manager;
namespace meta = proto::meta;

constexpr std::chrono::microseconds begin_limit{500};
constexpr std::chrono::microseconds end_limit{100};

/// A database with nothing around it, and a batch of as many bytes as an extent of 1,000 keys has.
class bare_rows {
 public:
  explicit bare_rows(const std::string& path) {
    rocksdb::DB* opened = nullptr;
    rocksdb::Options settings;
    settings.create_if_missing = true;
    if (rocksdb::DB::Open(settings, path, &opened).ok()) rows_.reset(opened);
  }
  [[nodiscard]] result<void> write(unsigned number) {
    rocksdb::WriteBatch batch;
    batch.Put(std::to_string(number), value_);
    if (rows_ != nullptr && rows_->Write({}, &batch).ok()) return {};
    return fail(error_code::system, "a bare RocksDB takes no batch");
  }

 private:
  std::unique_ptr<rocksdb::DB> rows_;
  std::string value_ = std::string(chain_keys * sizeof(std::uint64_t), 'x');
};

/// Sessions of 1,000 new keys each. A round begins one, and ends that of the round before.
class session_series {
 public:
  explicit session_series(private_manager& manager) : manager_(manager) {}

  void prepare(unsigned round) {
    if (round == 0) {
      start_ = request(first_chain);
      (void)begin();
    }
    meta::StartWriteCacheResponse started;
    (void)started.ParseFromString(answer_);
    finish_.set_instance_id(start_.instance_id());
    finish_.set_write_session_id(started.write_session_id());
    finish_.mutable_success_blocks()->set_offset(started.locations_size());
    start_ = request(first_chain + 1 + round);
  }
  [[nodiscard]] result<void> begin() {
    answer_ = manager_.ask(manager::rpc::start_write_cache, start_);
    return {};
  }
  [[nodiscard]] result<void> end() {
    const auto ended = manager_.call<meta::CommonResponse>(manager::rpc::finish_write_cache, finish_);
    return ended ? result<void>() : std::unexpected(ended.error());
  }

 private:
  static constexpr std::uint64_t first_chain = 1'000'000'000;  // beyond those that the index is filled with

  static meta::StartWriteCacheRequest request(std::uint64_t chain) {
    return chain_request<meta::StartWriteCacheRequest>(chain_kind::one_spec, chain);
  }

  private_manager& manager_;
  meta::StartWriteCacheRequest start_;
  meta::FinishWriteCacheRequest finish_;
  std::string answer_;
};

}  // namespace

result<void> run_session_rows(const row_context& context) {
  bare_rows rows(context.folder / "plain");
  work_thread threads;
  session_series sessions(context.manager);
  unsigned number = 0;
  const auto work_elsewhere = [&](std::chrono::microseconds work) {
    return [&threads, work]() -> result<void> {
      threads.call(work);
      return {};
    };
  };
  std::array<timed_side, 5> sides;
  sides[0].run = [&] { return sessions.begin(); };
  sides[1].run = [&] { return sessions.end(); };
  sides[2].run = work_elsewhere(begin_limit);
  sides[3].run = work_elsewhere(end_limit);
  sides[4].run = [&] { return rows.write(number); };
  const auto prepare = [&](unsigned round) {
    number = round;
    sessions.prepare(round);
  };
  if (auto timed = alternate(context, prepare, sides); !timed) return timed;
  context.out.add_time("begin of a session of 1,000 keys, beside 500 us of work of another thread", sides[0].times,
                       sides[2].times, {bound::kind::ratio_at_most, 1});
  context.out.add_time("its end, beside 100 us of work of another thread", sides[1].times, sides[3].times,
                       {bound::kind::ratio_at_most, 1});
  context.out.add_time("a bare batch of RocksDB of as many bytes as that session's", sides[4].times, {});
  return {};
}

}  // namespace cenote::bench

#include "commands/bench/manager/private_manager.hpp"

#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>

#include "services/manager/store/rocks_journal.hpp"

namespace cenote::bench {

namespace {

using namespace manager;
namespace meta = proto::meta;

constexpr double start_seconds = 600;
constexpr std::int64_t unbounded = std::int64_t{1} << 60U;  // bytes
constexpr int late_deletion = 3'600'000;                    // ms

proto::admin::InstanceGroup group_terms(std::int64_t capacity, std::int64_t version) {
  proto::admin::InstanceGroup terms;
  terms.set_name("group");
  terms.add_storage_candidates("files");
  terms.set_version(version);
  terms.mutable_quota()->set_capacity(capacity);
  auto& strategy = *terms.mutable_cache_config()->mutable_reclaim_strategy();
  strategy.mutable_trigger_strategy()->set_used_percentage(0.9);
  strategy.set_delay_before_delete_ms(late_deletion);
  return terms;
}

}  // namespace

result<double> private_manager::open(journal_opener open_journal) {
  close();
  const stopwatch time;
  writer_ = std::make_unique<manager_writer>(writer_options{.open_journal = std::move(open_journal), .name = "bench"});
  parts_.emplace(
      face_parts{.writer = *writer_, .access = access_, .counts = counts_, .log = log_, .settings = settings_});
  desk_ = std::make_unique<call_desk>(*parts_);
  reads_ = std::make_unique<meta_calls>(*writer_, settings_.limits, settings_.choice, counts_, nullptr);
  while (!desk_->is_healthy()) {
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    if (time.seconds() > start_seconds) return fail(error_code::deadline_exceeded, "the manager does not recover");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return time.seconds();
}

void private_manager::close() noexcept {
  reads_.reset();
  desk_.reset();
  parts_.reset();
  writer_.reset();
}

journal_opener private_manager::own_journal() const {
  return [path = rows_path()](const std::stop_token&) -> result<std::unique_ptr<journal>> {
    return rocks_journal::open({.folder = path});
  };
}

result<void> private_manager::set_up() {
  proto::admin::AddStorageRequest storage;
  storage.mutable_storage()->set_global_unique_name("files");
  storage.mutable_storage()->mutable_nfs()->set_root_path(folder_ / "blocks");
  storage.mutable_storage()->mutable_nfs()->set_key_count_per_file(64);
  if (auto added = call<proto::admin::CommonResponse>(manager::rpc::add_storage, storage); !added) {
    return std::unexpected(added.error());
  }
  proto::admin::CreateInstanceGroupRequest group;
  *group.mutable_instance_group() = group_terms(unbounded, version_);
  if (auto created = call<proto::admin::CommonResponse>(manager::rpc::create_instance_group, group); !created) {
    return std::unexpected(created.error());
  }
  for (std::uint64_t i = 0; i < chain_instances; ++i) {
    if (auto made = add_instance(chain_kind::one_spec, i); !made) return made;
  }
  return add_instance(chain_kind::eight_specs, 0);
}

result<void> private_manager::limit_bytes(std::int64_t capacity) {
  proto::admin::UpdateInstanceGroupRequest request;
  *request.mutable_instance_group() = group_terms(capacity, version_ + 1);
  request.set_current_version(version_);
  const auto done = call<proto::admin::CommonResponse>(manager::rpc::update_instance_group, request);
  if (!done) return std::unexpected(done.error());
  ++version_;
  return {};
}

result<manager_content> private_manager::content() {
  const stopwatch time;
  while (time.seconds() < start_seconds) {
    const auto usage = writer_->usage().take();
    manager_content sum;
    for (const auto& each : usage->instances) {
      sum.keys += static_cast<double>(each.keys);
      sum.bytes += static_cast<double>(each.used);
    }
    if (sum.keys != 0) return sum;
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fail(error_code::deadline_exceeded, "the manager shows no figures");
}

result<void> private_manager::add_instance(chain_kind kind, std::uint64_t chain) {
  proto::RegisterInstanceRequest request;
  request.set_instance_group("group");
  request.set_instance_id(instance_name(kind, chain));
  request.set_block_size(16);
  request.mutable_model_deployment()->set_model_name("m");
  request.mutable_model_deployment()->set_dtype("bf16");
  for (int i = 0; i < static_cast<int>(kind); ++i) {
    auto& spec = *request.add_location_spec_infos();
    spec.set_name("tp" + std::to_string(i));
    spec.set_size(spec_bytes);
  }
  const auto made = call<meta::RegisterInstanceResponse>(manager::rpc::register_instance, request);
  return made ? result<void>() : std::unexpected(made.error());
}

result<void> private_manager::write_chain(chain_kind kind, std::uint64_t chain, std::size_t keys) {
  auto request = chain_request<meta::StartWriteCacheRequest>(kind, chain);
  request.mutable_block_keys()->Truncate(static_cast<int>(keys));
  const auto started = call<meta::StartWriteCacheResponse>(manager::rpc::start_write_cache, request);
  if (!started) return std::unexpected(started.error());
  meta::FinishWriteCacheRequest finish;
  finish.set_instance_id(request.instance_id());
  finish.set_write_session_id(started->write_session_id());
  finish.mutable_success_blocks()->set_offset(started->locations_size());
  const auto finished = call<meta::CommonResponse>(manager::rpc::finish_write_cache, finish);
  return finished ? result<void>() : std::unexpected(finished.error());
}

result<void> private_manager::fill(chain_kind kind, std::uint64_t first, std::uint64_t end) {
  constexpr std::size_t least_keys = 100;
  for (std::uint64_t chain = first; chain < end; ++chain) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const std::size_t cut = least_keys + mixed(chain) % (chain_keys - least_keys + 1);
    if (cut <= chain_keys - least_keys) {
      if (auto written = write_chain(kind, chain, cut); !written) return written;
    }
    if (auto written = write_chain(kind, chain); !written) return written;
  }
  return {};
}

}  // namespace cenote::bench

// Numbers of fields: bytes that are written by hand mean the same messages, and the messages make the same bytes.
#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/support/wire_bytes.hpp"
#include "transport/manager/proto/admin.pb.h"
#include "transport/manager/proto/debug.pb.h"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

namespace {

namespace proto = ::kv_cache_manager::proto;
using test::wire_bytes;

// The message of some bytes, which makes the same bytes again: no field of them is unknown.
template <class Message>
Message parsed(const wire_bytes& bytes) {
  Message message;
  BOOST_TEST_REQUIRE(message.ParseFromString(bytes.bytes()));
  BOOST_TEST(message.SerializeAsString() == bytes.bytes());
  BOOST_TEST(message.GetReflection()->GetUnknownFields(message).empty());
  return message;
}

wire_bytes registration() {
  wire_bytes bytes;
  bytes.text(1, "trace").text(2, "group").text(3, "instance").number(4, 64);
  bytes.part(5, wire_bytes().text(1, "tp0").number(2, 512));
  bytes.part(6, wire_bytes()
                    .text(1, "m")
                    .text(2, "bf16")
                    .number(3, 1)
                    .number(4, 4)
                    .number(5, 2)
                    .text(6, "l")
                    .number(7, 3)
                    .text(8, "e")
                    .text(9, "u")
                    .number(10, 1));
  bytes.part(7, wire_bytes().text(1, "F0").text(2, "tp0"));
  return bytes.number(8, 2).text(9, "{}");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(message_numbers)

BOOST_AUTO_TEST_CASE(a_registration_has_its_numbers) {
  const auto request = parsed<proto::RegisterInstanceRequest>(registration());
  BOOST_TEST(request.instance_group() == "group");
  BOOST_TEST(request.instance_id() == "instance");
  BOOST_TEST(request.block_size() == 64);
  BOOST_TEST(request.location_spec_infos(0).size() == 512);
  const auto& model = request.model_deployment();
  BOOST_TEST((model.use_mla() && model.tp_size() == 4 && model.dp_size() == 2 && model.pp_size() == 3));
  BOOST_TEST((model.lora_name() == "l" && model.extra() == "e" && model.user_data() == "u" && model.use_eagle_pop()));
  BOOST_TEST(request.location_spec_groups(0).spec_names(0) == "tp0");
  BOOST_TEST(request.default_query_type() == proto::QT_PREFIX_MATCH);
  BOOST_TEST(request.affinity_strategy_json() == "{}");
}

BOOST_AUTO_TEST_CASE(an_instance_has_its_numbers) {
  wire_bytes bytes;
  bytes.text(1, "q").text(2, "group").text(3, "instance").number(4, 64).number(8, 4).text(9, "{}");
  const auto info = parsed<proto::InstanceInfo>(bytes);
  BOOST_TEST((info.quota_group_name() == "q" && info.instance_group_name() == "group" && info.block_size() == 64));
  BOOST_TEST(info.default_query_type() == proto::QT_PREFIX_MATCH_WITH_MAMBA);
}

BOOST_AUTO_TEST_CASE(a_query_has_its_numbers) {
  wire_bytes bytes;
  bytes.text(1, "t").text(2, "i").number(3, 3).text(4, std::string("\x01\x02", 2)).text(5, "\x07");
  bytes.part(6, wire_bytes().number(1, 5)).number(7, 2).text(8, "tp0").part(9, wire_bytes().text(1, "n").text(2, "s"));
  bytes.text(100, std::string(16, 'k'));
  const auto request = parsed<proto::meta::GetCacheLocationRequest>(bytes);
  BOOST_TEST((request.block_keys(1) == 2 && request.token_ids(0) == 7 && request.block_mask().offset() == 5));
  BOOST_TEST((request.sw_size() == 2 && request.location_spec_names(0) == "tp0"));
  BOOST_TEST((request.caller().node_id() == "n" && request.caller().supernode_id() == "s"));
  BOOST_TEST(request.byte_keys(0).size() == 16U);
}

BOOST_AUTO_TEST_CASE(a_mask_of_bools_has_its_numbers) {
  const auto mask = parsed<proto::BlockMask>(wire_bytes().part(2, wire_bytes().text(1, std::string("\x01\0\x01", 3))));
  BOOST_TEST(mask.bool_masks().values_size() == 3);
  BOOST_TEST(!mask.bool_masks().values(1));
}

BOOST_AUTO_TEST_CASE(other_queries_have_their_numbers) {
  const auto length = parsed<proto::meta::GetCacheLocationLenRequest>(
      wire_bytes().text(2, "i").number(3, 2).text(4, "\x01").text(5, "\x02").number(6, 7).text(100, "k"));
  BOOST_TEST(length.sw_size() == 7);
  const auto backends = parsed<proto::meta::GetCacheLocationsByBackendRequest>(
      wire_bytes().number(3, 1).number(7, 1).text(8, "tp0").part(9, wire_bytes().number(1, 4).number(2, 3)));
  BOOST_TEST(backends.backend_selectors(0).backend_type() == proto::ST_NFS);
  BOOST_TEST(backends.backend_selectors(0).strategy() == proto::meta::LSS_WEIGHTED_RANDOM);
  const auto meta = parsed<proto::GetCacheMetaRequest>(
      wire_bytes().text(2, "i").text(3, "\x01").text(4, "\x02").part(5, wire_bytes().number(1, 1)).number(6, 2));
  BOOST_TEST(meta.detail_level() == 2);
  const auto hosts = parsed<proto::meta::GetHostCacheStateRequest>(
      wire_bytes().text(2, "i").number(3, 2).text(4, "\x01\x02").text(5, "gpu"));
  BOOST_TEST((hosts.block_cache_keys_size() == 2 && hosts.medium(0) == "gpu"));
}

BOOST_AUTO_TEST_CASE(a_location_has_its_numbers) {
  wire_bytes bytes;
  bytes.number(1, 1).number(2, 1);
  bytes.part(3, wire_bytes().text(1, "tp0").text(2, "file://x").text(3, "n").fixed(100, 77));
  bytes.text(4, "id").text(5, "CLS_SERVING").number(6, 1700000000);
  const auto location = parsed<proto::CacheLocation>(bytes);
  BOOST_TEST((location.type() == proto::ST_3FS && location.spec_size() == 1 && location.id() == "id"));
  BOOST_TEST((location.location_specs(0).node_id() == "n" && location.location_specs(0).checksum() == 77U));
  BOOST_TEST((location.status() == "CLS_SERVING" && location.create_time() == 1700000000));
}

BOOST_AUTO_TEST_CASE(sessions_of_writes_have_their_numbers) {
  wire_bytes bytes;
  bytes.text(2, "i").text(3, "\x01").text(5, "F0").number(6, 30).number(7, 2).number(8, 1).text(9, "n");
  bytes.part(10, wire_bytes().text(1, "c")).text(100, "k");
  const auto start = parsed<proto::meta::StartWriteCacheRequest>(bytes);
  BOOST_TEST((start.location_spec_group_names(0) == "F0" && start.write_timeout_seconds() == 30));
  BOOST_TEST((start.min_replica_count() == 2 && start.is_replication() && start.replication_target_node_id() == "n"));
  const auto answer = parsed<proto::meta::StartWriteCacheResponse>(
      wire_bytes().text(2, "session").part(3, wire_bytes().number(1, 1)).part(4, wire_bytes().number(1, 4)));
  BOOST_TEST((answer.write_session_id() == "session" && answer.locations(0).type() == proto::ST_NFS));
  const auto finish = parsed<proto::meta::FinishWriteCacheRequest>(wire_bytes()
                                                                       .text(2, "i")
                                                                       .text(3, "session")
                                                                       .part(4, wire_bytes().number(1, 2))
                                                                       .text(100, std::string(16, '\x01')));
  BOOST_TEST((finish.success_blocks().offset() == 2 && finish.checksums_size() == 2));
  const auto trim =
      parsed<proto::meta::TrimCacheRequest>(wire_bytes().text(2, "i").number(3, 3).number(4, 5).number(5, 6));
  BOOST_TEST(
      (trim.strategy() == proto::meta::TS_TIMESTAMP && trim.begin_timestamp() == 5 && trim.end_timestamp() == 6));
}

BOOST_AUTO_TEST_CASE(headers_have_their_numbers) {
  const wire_bytes status = wire_bytes().number(1, 9).text(2, "not here");
  const auto meta = parsed<proto::meta::CommonResponse>(
      wire_bytes().part(1, wire_bytes().part(1, status).text(2, "r").text(3, "t").text(100, "h:1")));
  BOOST_TEST(meta.header().status().code() == proto::SERVER_NOT_LEADER);
  BOOST_TEST((meta.header().tracer_result() == "t" && meta.header().leader() == "h:1"));
  const auto admin = parsed<proto::admin::CommonResponse>(
      wire_bytes().part(1, wire_bytes().part(1, status).text(2, "r").text(100, "h:1")));
  BOOST_TEST((admin.header().request_id() == "r" && admin.header().leader() == "h:1"));
  parsed<proto::debug::CommonResponse>(wire_bytes().part(1, wire_bytes().part(1, status).text(2, "r")));
}

BOOST_AUTO_TEST_CASE(reports_have_their_numbers) {
  const wire_bytes spec = wire_bytes().text(1, "F0").text(2, "event_report://h/1");
  wire_bytes bytes;
  bytes.text(2, "i").text(3, "h:1");
  bytes.part(4, wire_bytes().number(1, 1).part(2, wire_bytes().text(1, "gpu")));
  bytes.part(4, wire_bytes().number(1, 2).part(3, wire_bytes().text(1, "7").text(2, "u").text(3, "gpu").part(4, spec)));
  bytes.part(4, wire_bytes().number(1, 3).part(4, wire_bytes().text(1, "7").text(2, "gpu").text(3, "F0")));
  bytes.part(4, wire_bytes().number(1, 4).part(5, wire_bytes()));
  bytes.part(4, wire_bytes().number(1, 5).part(6, wire_bytes().part(1, wire_bytes().text(1, "load").text(2, "0.4"))));
  bytes.part(4, wire_bytes().number(1, 6).part(7, wire_bytes()
                                                      .text(1, "gpu")
                                                      .part(2, wire_bytes().text(1, "7").text(2, "gpu").part(3, spec))
                                                      .number(101, 1)
                                                      .number(102, 2)));
  bytes.number(5, 8);
  const auto request = parsed<proto::meta::ReportEventRequest>(bytes);
  BOOST_TEST(request.storage_type() == proto::ST_EVENT_REPORT_L2);
  BOOST_TEST(request.events(4).heartbeat().system_status().at("load") == "0.4");
  BOOST_TEST(request.events(5).block_snapshot().blocks(0).specs(0).name() == "F0");
  BOOST_TEST(request.events(5).block_snapshot().parts() == 2);
  const auto answer = parsed<proto::meta::ReportEventResponse>(
      wire_bytes().text(2, "\x01\x05").text(3, "v").number(4, 9).number(5, 1).text(6, "x"));
  BOOST_TEST((answer.item_results(1) == proto::INVALID_ARGUMENT && answer.retry_after_ms() == 9U));
}

BOOST_AUTO_TEST_CASE(clusters_have_their_numbers) {
  const auto meta = parsed<proto::meta::GetClusterInfoResponse>(wire_bytes().text(2, "m1").text(3, "m2").part(
      4, wire_bytes().text(1, "m2").text(2, "h").number(3, 6381).number(4, 6382).text(5, "c")));
  BOOST_TEST((meta.leader_endpoint().meta_rpc_port() == 6381 && meta.leader_endpoint().meta_http_port() == 6382));
  const auto admin = parsed<proto::admin::GetManagerClusterInfoResponse>(
      wire_bytes().number(2, 1).number(3, 2).text(4, "m1").text(5, "m2").part(
          6, wire_bytes().text(1, "m2").text(2, "h").number(3, 1).number(4, 2).number(5, 3).number(6, 4).text(7, "c")));
  BOOST_TEST((admin.leader_endpoint().admin_rpc_port() == 3 && admin.leader_endpoint().admin_http_port() == 4));
  const auto health = parsed<proto::admin::CheckHealthResponse>(wire_bytes().number(2, 1).number(3, 1).number(4, 5));
  BOOST_TEST((health.is_leader() && health.is_health() && health.elector_last_loop_time_ms() == 5));
}

BOOST_AUTO_TEST_CASE(storages_have_their_numbers) {
  using proto::admin::StorageConfig;
  const auto nfs = parsed<StorageConfig>(wire_bytes()
                                             .text(1, "n")
                                             .part(6, wire_bytes().text(1, "/x").number(2, 8))
                                             .number(8, 1)
                                             .number(11, 4)
                                             .number(102, 5)
                                             .number(103, 6));
  BOOST_TEST((nfs.nfs().root_path() == "/x" && nfs.nfs().key_count_per_file() == 8 && nfs.capacity() == 5));
  BOOST_TEST(
      (nfs.check_storage_available_when_open() && nfs.storage_type() == proto::ST_NFS && nfs.read_weight() == 6));
  const auto threefs = parsed<StorageConfig>(
      wire_bytes().part(3, wire_bytes().text(1, "c").text(2, "/3fs").text(3, "d").number(4, 2).number(5, 1)));
  BOOST_TEST((threefs.threefs().mountpoint() == "/3fs" && threefs.threefs().root_dir() == "d"));
  const auto mooncake = parsed<StorageConfig>(
      wire_bytes().part(4, wire_bytes().text(1, "h").text(2, "m").text(3, "tcp").text(4, "d").text(5, "e")));
  BOOST_TEST(mooncake.mooncake().master_service_entry() == "e");
  const auto tair =
      parsed<StorageConfig>(wire_bytes().part(5, wire_bytes().text(1, "d").number(2, 1).text(5, "u").number(6, 5)));
  BOOST_TEST(tair.tair_mem_pool().media_type() == 5);
  const auto reports = parsed<StorageConfig>(wire_bytes().number(11, 7).part(
      14, wire_bytes().number(1, 1).number(2, 2).number(3, 3).number(4, 4).number(5, 5)));
  BOOST_TEST(reports.event_report().snapshot_min_interval_ms() == 4);
  parsed<StorageConfig>(wire_bytes().part(2, wire_bytes()));
  BOOST_TEST(parsed<StorageConfig>(wire_bytes().part(7, wire_bytes().text(1, "c"))).has_vcnsthreefs());
  BOOST_TEST(parsed<StorageConfig>(wire_bytes().part(9, wire_bytes().text(1, "/x"))).dummy().root_path() == "/x");
  BOOST_TEST(parsed<StorageConfig>(wire_bytes().part(100, wire_bytes().text(1, "u").text(2, "a"))).redis().url() ==
             "u");
  BOOST_TEST(parsed<StorageConfig>(wire_bytes().part(101, wire_bytes().text(1, "c"))).cenote().cluster_id() == "c");
  BOOST_TEST(parsed<proto::admin::UpdateStorageRequest>(wire_bytes().number(3, 1)).force_update());
  BOOST_TEST(parsed<proto::admin::RemoveStorageRequest>(wire_bytes().text(2, "n").number(100, 1)).force());
}

BOOST_AUTO_TEST_CASE(groups_have_their_numbers) {
  wire_bytes reclaim;
  reclaim.text(1, "n").number(2, 3).part(3, wire_bytes().number(1, 9).real(2, 0.5)).number(4, 4).number(5, 5);
  reclaim.number(6, 6).number(7, 7).number(8, 0).number(100, 60).number(101, 1).text(102, "lru");
  wire_bytes index;
  index.number(1, 100).number(2, 16).number(3, 8);
  index.part(4, wire_bytes().text(1, "local").text(2, "u").number(3, 1));
  index.part(5, wire_bytes().number(1, 1).text(2, "LRU").number(3, 2).real(4, 0.25)).part(6, wire_bytes().number(1, 5));
  wire_bytes bytes;
  bytes.text(1, "g").text(2, "n").text(3, "q").number(4, 8);
  bytes.part(5, wire_bytes().number(1, 1000).part(2, wire_bytes().number(1, 4).number(2, 500)));
  bytes.part(6, wire_bytes().part(1, reclaim).number(2, 2).part(3, index));
  bytes.text(7, "u").number(8, 3).text(9, "x").text(10, "e").text(11, "1,5").text(12, "{}").number(100, 1);
  const auto group = parsed<proto::admin::InstanceGroup>(bytes);
  const auto& strategy = group.cache_config().reclaim_strategy();
  BOOST_TEST(strategy.reclaim_policy() == proto::admin::POLICY_TTL);
  BOOST_TEST((strategy.trigger_strategy().used_size() == 9 && strategy.trigger_strategy().used_percentage() == 0.5));
  BOOST_TEST((strategy.has_instance_reclaim_budget_policy() && strategy.delay_before_delete_ms() == 7));
  BOOST_TEST((strategy.ttl_seconds() == 60 && strategy.ttl_sliding() && strategy.reclaim_policy_name() == "lru"));
  BOOST_TEST(group.cache_config().data_storage_strategy() == proto::admin::CPS_PREFER_3FS);
  BOOST_TEST(group.cache_config().meta_indexer_config().persist_metadata_interval_time_ms().value() == 5);
  BOOST_TEST((group.quota().quota_config(0).capacity() == 500 && group.version() == 3 && group.reclaim_paused()));
  BOOST_TEST((group.event_report_storage_candidates(0) == "e" && group.revisit_interval_buckets() == "1,5"));
}

BOOST_AUTO_TEST_CASE(accounts_snapshots_and_metrics_have_their_numbers) {
  const auto add =
      parsed<proto::admin::AddAccountRequest>(wire_bytes().text(2, "u").text(3, "p").number(4, 1).text(100, "g"));
  BOOST_TEST((add.password() == "p" && add.role() == proto::admin::ROLE_ADMIN && add.groups(0) == "g"));
  const auto list =
      parsed<proto::admin::ListAccountResponse>(wire_bytes().part(2, wire_bytes().text(1, "u").number(2, 1)));
  BOOST_TEST(list.accounts(0).user_name() == "u");
  const auto load = parsed<proto::admin::LoadConfigSnapshotRequest>(wire_bytes().text(2, "{}").number(100, 1));
  BOOST_TEST((load.config_snapshot() == "{}" && load.dry_run()));
  const auto metrics = parsed<proto::admin::GetMetricsResponse>(wire_bytes().number(2, 1).part(
      3, wire_bytes().text(1, "m").part(2, wire_bytes().real(2, 0.5)).part(3, wire_bytes().text(1, "k").text(2, "v"))));
  BOOST_TEST(metrics.metrics(0).metric_value().float_value() == 0.5);
  const auto fault = parsed<proto::debug::InjectFaultRequest>(wire_bytes().text(1, "a").number(3, 1).number(4, 2));
  BOOST_TEST((fault.fault_trigger_strategy() == proto::debug::ONCE && fault.trigger_at_call() == 2));
}

BOOST_AUTO_TEST_CASE(fields_that_are_not_known_are_no_fault) {
  const wire_bytes bytes = wire_bytes().text(2, "i").part(9, wire_bytes().text(1, "n").number(3, 5)).number(555, 1);
  proto::meta::GetCacheLocationRequest request;
  BOOST_TEST(request.ParseFromString(bytes.bytes()));
  BOOST_TEST(request.caller().node_id() == "n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

// Codes of answers beside those of the wire.
#include "transport/manager/answer_code.hpp"

#include <boost/test/unit_test.hpp>

#include "transport/manager/proto/shared.pb.h"
#include "transport/manager/storage_type.hpp"

namespace cenote::manager {

BOOST_AUTO_TEST_SUITE(answer_codes)

BOOST_AUTO_TEST_CASE(every_code_of_the_wire_has_the_same_name_here) {
  namespace proto = ::kv_cache_manager::proto;
  const auto& codes = *proto::ErrorCode_descriptor();
  for (int i = 0; i < codes.value_count(); ++i) {
    const auto& row = *codes.value(i);
    if (row.number() == proto::ERROR_MAX) continue;
    BOOST_TEST(name_of(static_cast<answer_code>(row.number())) == row.name());
  }
  BOOST_TEST(codes.FindValueByNumber(static_cast<int>(answer_code::in_use))->name() == "IN_USE");
  BOOST_TEST(name_of(static_cast<answer_code>(12)) == "?");
}

BOOST_AUTO_TEST_CASE(every_type_of_storage_of_the_wire_has_the_same_name_here) {
  const auto& types = *::kv_cache_manager::proto::StorageType_descriptor();
  for (int i = 0; i < types.value_count(); ++i) {
    const auto type = storage_type_of(types.value(i)->number());
    BOOST_REQUIRE(type.has_value());
    BOOST_TEST(name_of(*type) == types.value(i)->name());
  }
  for (const int number : {-1, 10, 99, 102, 255, 256, 260, 1 << 30}) BOOST_TEST(!storage_type_of(number).has_value());
}

BOOST_AUTO_TEST_CASE(a_refusal_carries_its_code_and_its_message) {
  const rpc_outcome<int> outcome = refuse(answer_code::in_use, "group `g` has 2 instances");
  BOOST_REQUIRE(!outcome.has_value());
  BOOST_TEST(static_cast<int>(outcome.error().code) == 1006);
  BOOST_TEST(outcome.error().message == "group `g` has 2 instances");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager

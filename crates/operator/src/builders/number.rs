//! Numbers for the API. In: whole numbers of any type. Out: the integers of the API. A number that does not fit becomes the nearest
//! that does, for the API server to refuse by its own rules.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A whole number of any type, so that `replicas(spec.replicas)` needs no conversion.
pub trait Count {
    /// The number.
    fn count(self) -> i128;
}

/// A port, or a number of pods: a whole number, or text (`"http"`, `"25%"`).
pub trait NumberOrText {
    /// As the API has it.
    fn number_or_text(self) -> IntOrString;
}

/// The nearest `i32`, which the API has for most numbers.
pub(super) fn int32(number: impl Count) -> i32 {
    number.count().clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// The nearest `i64`, which the API has for seconds and user ids.
pub(super) fn int64(number: impl Count) -> i64 {
    number.count().clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

macro_rules! counts {
    ($($number:ty)*) => {$(
        impl Count for $number {
            fn count(self) -> i128 {
                self as i128
            }
        }

        impl NumberOrText for $number {
            fn number_or_text(self) -> IntOrString {
                IntOrString::Int(int32(self))
            }
        }
    )*};
}

counts! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

macro_rules! texts {
    ($($text:ty)*) => {$(
        impl NumberOrText for $text {
            fn number_or_text(self) -> IntOrString {
                IntOrString::String(self.into())
            }
        }
    )*};
}

texts! { &str String &String }

impl NumberOrText for IntOrString {
    fn number_or_text(self) -> IntOrString {
        self
    }
}

//! The declaration of a kind: the root object around its spec and status.
//!
//! `kube`'s own derive makes `spec` mandatory, but users write objects without one (a `ResourceFlavor` for any node is only a name), and such an
//! object must decode. So the root is declared here: absent parts are defaults, `apiVersion` and `kind` are written from the type.

/// The API group of all kinds (docs/reference/01-api.md 1.0).
pub const GROUP: &str = "kueue.x-k8s.io";

macro_rules! custom_resource {
    (
        $(#[$meta:meta])*
        pub struct $kind:ident($version:literal, $plural:literal, $scope:ident) {
            always { $( $(#[$ameta:meta])* $afield:ident: $aty:ty, )* }
            if_some { $( $(#[$smeta:meta])* $sfield:ident: $sty:ty, )* }
        }
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, schemars::JsonSchema)]
        $(#[$meta])*
        pub struct $kind {
            /// Name, labels, annotations, owners.
            #[serde(default)]
            #[schemars(skip)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$ameta])* pub $afield: $aty, )*
            $( $(#[$smeta])* #[serde(default)] pub $sfield: Option<$sty>, )*
        }

        impl $kind {
            /// The object's `apiVersion`.
            pub const API_VERSION: &'static str = concat!("kueue.x-k8s.io/", $version);
            /// The object's `kind`.
            pub const KIND: &'static str = stringify!($kind);
            /// The plural that stands in URLs.
            pub const PLURAL: &'static str = $plural;
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let fields = [
                    "apiVersion", "kind", "metadata",
                    $( stringify!($afield), )*
                ].len() $( + usize::from(self.$sfield.is_some()) )*;
                let mut object = serializer.serialize_struct(Self::KIND, fields)?;
                object.serialize_field("apiVersion", Self::API_VERSION)?;
                object.serialize_field("kind", Self::KIND)?;
                object.serialize_field("metadata", &self.metadata)?;
                $( object.serialize_field(stringify!($afield), &self.$afield)?; )*
                $(
                    if let Some(value) = &self.$sfield {
                        object.serialize_field(stringify!($sfield), value)?;
                    }
                )*
                object.end()
            }
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                Self::KIND.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $crate::GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn api_version((): &()) -> std::borrow::Cow<'_, str> {
                Self::API_VERSION.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use custom_resource;
